"""The operator of Ray as a part of the process: one controller for each of its kinds, and what they share."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.ray.parts import Calls, OtherOperator, Pools, RayParts
from gpu_control_plane.ray.settings import Settings

_DEFAULTS: Final = Settings()


def build(
    runtime: Runtime,
    settings: Settings = _DEFAULTS,
    *,
    lease: OtherOperator,
    gpus: Pools,
    calls: Calls,
    now: Callable[[], datetime] = utc_now,
    dashboard_at: Callable[[Key], str] | None = None,
) -> RayParts:
    """Add the operator of Ray to a process."""
    return RayParts(runtime, settings, lease=lease, gpus=gpus, calls=calls, now=now, dashboard_at=dashboard_at)
