"""The operator of Ray as a part of the process: one controller for each of its kinds, and what they share."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.ray.gpus import LivePools
from gpu_control_plane.ray.metrics import RayMetrics
from gpu_control_plane.ray.operator_lease import KubeRayLease
from gpu_control_plane.ray.parts import Calls, RayParts
from gpu_control_plane.ray.settings import Settings
from gpu_control_plane.ray.waiting import controller as waiting
from gpu_control_plane.ray.waiting.lookup import WaitingLookup

_DEFAULTS: Final = Settings()


def build(
    runtime: Runtime,
    settings: Settings = _DEFAULTS,
    *,
    calls: Calls,
    now: Callable[[], datetime] = utc_now,
    dashboard_at: Callable[[Key], str] | None = None,
) -> RayParts:
    """Add the operator of Ray to a process."""
    gpus = LivePools()
    runtime.cache(GPUPool).on_change(gpus.changed)
    lease = KubeRayLease(runtime, settings.trusted.include, now=now)
    parts = RayParts(runtime, settings, lease=lease, gpus=gpus, calls=calls, now=now, dashboard_at=dashboard_at)
    lookup = WaitingLookup(parts.caches, gpus)
    RayMetrics(runtime.metrics.registry, lookup, lambda: runtime.leading and lease.active() is None)
    waiting.build(parts, lookup)
    return parts
