"""How long a RayService may take to come up. Pure."""

from datetime import datetime, timedelta

from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.api.ray.reasons import ServiceReason
from gpu_control_plane.api.ray.service import RayService, ServiceCondition
from gpu_control_plane.kube.conditions import FALSE, find
from gpu_control_plane.rules.ray.texts import duration


def initializing_timeout(service: RayService) -> timedelta | None:
    """The limit in the annotation: seconds, or a duration in Go's format. None if it is missing or not positive."""
    found = duration(service.metadata.annotations.get(Annotation.INITIALIZING_TIMEOUT.value, ""))
    return found if found is not None and found > timedelta() else None


def time_left(service: RayService, begun: datetime | None, now: datetime) -> timedelta | None:
    """How long the service still has to become ready; None if there is no limit, or it is not initializing. `begun`:
    when its newest cluster was created, so that a corrected spec has the whole time."""
    limit = initializing_timeout(service)
    ready = find(service.status.conditions, ServiceCondition.READY)
    if limit is None or ready is None or ready.status != FALSE or ready.reason != ServiceReason.INITIALIZING:
        return None
    resumed = find(service.status.conditions, ServiceCondition.SUSPENDED)
    moments = [ready.last_transition_time, *([resumed.last_transition_time] if resumed is not None else ())]
    since = max([*moments, *([begun] if begun is not None else ())])
    left: timedelta = since + limit - now
    return left


def has_timed_out(service: RayService) -> bool:
    """Whether the service has not become ready in time, and its spec has not changed since."""
    ready = find(service.status.conditions, ServiceCondition.READY)
    return (
        ready is not None
        and ready.reason == ServiceReason.INITIALIZING_TIMEOUT
        and ready.observed_generation == service.metadata.generation
    )
