"""The operator of Ray as a part of the process: one controller for each of its kinds, and what they share."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.ray.cluster import controller as cluster
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.cronjob import controller as cronjob
from gpu_control_plane.ray.dashboard.access import Addresses
from gpu_control_plane.ray.dashboard.exchange import Exchange
from gpu_control_plane.ray.job import controller as job
from gpu_control_plane.ray.metrics import RayMetrics
from gpu_control_plane.ray.service import controller as service
from gpu_control_plane.ray.settings import Settings
from gpu_control_plane.ray.waiting import controller as waiting
from gpu_control_plane.ray.waiting.lookup import WaitingLookup

_DEFAULTS: Final = Settings()


def build(
    runtime: Runtime,
    settings: Settings = _DEFAULTS,
    *,
    now: Callable[[], datetime] = utc_now,
    exchange: Exchange | None = None,
    where: Addresses | None = None,
) -> RayComponents:
    """Add the operator of Ray to a process. Tests say by `exchange` and `where` how dashboards are reached."""
    components = RayComponents(runtime, settings, now=now, exchange=exchange, where=where)
    cluster.build(components)
    job.build(components)
    service.build(components)
    cronjob.build(components)
    lookup = WaitingLookup(components.caches, components.gpus)
    RayMetrics(runtime.metrics.registry, lookup, lambda: runtime.leading and components.lease.active() is None)
    waiting.build(components, lookup)
    return components
