"""Whether KubeRay's own operator is active, by its Lease. While it is, this one only looks on."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from gpu_control_plane.api.ray.names import LEASE
from gpu_control_plane.kube import Runtime
from gpu_control_plane.kube.lease_watch import LeaseWatch, lease_selection
from gpu_control_plane.kube.times import utc_now

LEASE_SELECTION: Final = lease_selection(LEASE)


class KubeRayLease(LeaseWatch):
    """The Leases of KubeRay's operator; `rules.trusted_namespaces.kuberay_namespaces` says where they are believed."""

    def __init__(
        self,
        runtime: Runtime,
        trusted: Callable[[str | None], bool],
        *,
        now: Callable[[], datetime] = utc_now,
        namespace: str | None = None,
    ) -> None:
        super().__init__(runtime, "kuberay-lease", LEASE, trusted, now=now, namespace=namespace)
