"""Whether NVIDIA's own operator is active, by its Lease."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from gpu_control_plane.api.nvidia.names import LEASE
from gpu_control_plane.kube import Runtime
from gpu_control_plane.kube.lease_watch import LeaseWatch, lease_selection
from gpu_control_plane.kube.times import utc_now

LEASE_SELECTION: Final = lease_selection(LEASE)


class NVIDIALeaseWatch(LeaseWatch):
    """The Leases of NVIDIA's operator."""

    def __init__(
        self, runtime: Runtime, trusted: Callable[[str | None], bool], *, now: Callable[[], datetime] = utc_now
    ) -> None:
        super().__init__(runtime, "nvidia-lease", LEASE, trusted, now=now)
