"""How long a RayService may take to come up. Pure."""

import re
from datetime import datetime, timedelta
from typing import Final

from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.api.ray.service import RayService, ServiceCondition
from gpu_control_plane.kube.conditions import FALSE, find
from gpu_control_plane.ray.service.conditions import Reason

_UNITS: Final = {
    "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9,
}  # fmt: skip
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def initializing_timeout(service: RayService) -> timedelta | None:
    """What the annotation says: seconds, or a duration as Go writes it. None where it says nothing of use."""
    return duration(service.metadata.annotations.get(Annotation.INITIALIZING_TIMEOUT.value, ""))


def duration(text: str) -> timedelta | None:
    """A positive duration, such as `300`, `90s` or `1h30m`."""
    if text.isascii() and text.isdecimal():
        seconds = float(text[:12])
    else:
        parts = _PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            return None
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return timedelta(seconds=seconds) if 0 < seconds <= timedelta.max.total_seconds() else None


def time_left(service: RayService, begun: datetime | None, now: datetime) -> timedelta | None:
    """How long it still has to come up; None where there is no limit, or it is up. `begun`: when its newest cluster
    was made, so that a corrected spec has the whole time."""
    limit = initializing_timeout(service)
    ready = find(service.status.conditions, ServiceCondition.READY)
    if limit is None or ready is None or ready.status != FALSE or ready.reason != Reason.INITIALIZING:
        return None
    resumed = find(service.status.conditions, ServiceCondition.SUSPENDED)
    moments = [ready.last_transition_time, *([resumed.last_transition_time] if resumed is not None else ())]
    since = max([*moments, *([begun] if begun is not None else ())])
    left: timedelta = since + limit - now
    return left


def has_timed_out(service: RayService) -> bool:
    """Whether it has not come up in time, and its spec has not changed since."""
    ready = find(service.status.conditions, ServiceCondition.READY)
    return (
        ready is not None
        and ready.reason == Reason.INITIALIZING_TIMEOUT
        and ready.observed_generation == service.metadata.generation
    )
