"""When a RayCluster that nobody uses is suspended. Pure.

Ray's dashboard says whether there are drivers, what is served, and which actors live. A cluster without any of them
counts as idle since its last driver ended, since it was seen to be at work last, or since its head was ready, whichever
was last: so one that a person has resumed has its whole time again.
A cluster that belongs to a RayJob or RayService is left to them.
"""

import re
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gpu_control_plane.api.ray.cluster import ClusterCondition, RayCluster
from gpu_control_plane.api.ray.names import Annotation, Label
from gpu_control_plane.kube.conditions import TRUE, find
from gpu_control_plane.ray.dashboard.models import Activity
from gpu_control_plane.settings import DURATION, parse_duration

MIN_TIMEOUT: Final = timedelta(minutes=1)


class Idleness(msgspec.Struct, frozen=True, kw_only=True):
    """Since when a cluster is idle."""

    since: datetime | None
    """None while it is at work, and while that is not known."""
    suspend: bool = False
    again_at: datetime | None = None


def idle_timeout(cluster: RayCluster) -> timedelta | None:
    """How long the cluster may be idle; None if it may be so for ever, or is another controller's to end."""
    text = cluster.metadata.annotations.get(Annotation.IDLE_TIMEOUT, "")
    made_by = cluster.metadata.labels.get(Label.ORIGINATED_FROM_KIND, "")
    if made_by in ("RayJob", "RayService") or re.fullmatch(DURATION, text) is None:
        return None
    return max(parse_duration(text), MIN_TIMEOUT)


def idleness(
    cluster: RayCluster,
    timeout: timedelta,
    activity: Activity | None,
    *,
    asked_at: datetime,
    worked_until: datetime | None = None,
    now: datetime,
) -> Idleness:
    """Whether it is to be suspended, by what its dashboard answered at `asked_at`; None for no answer. `worked_until`
    is when it was seen to have no work any more, if it had some."""
    head = find(cluster.status.conditions, ClusterCondition.HEAD_POD_READY)
    # What is not known to be idle is at work.
    if head is None or head.status != TRUE or activity is None or activity.active:
        return Idleness(since=None)
    times = (head.last_transition_time, activity.last_activity, worked_until)
    since = min(max(time for time in times if time is not None), now)
    over = since + timeout
    # The answer has to be from after that time: work may have begun since an older one.
    return Idleness(since=since, suspend=now >= over and asked_at >= over, again_at=over)
