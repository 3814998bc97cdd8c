"""When a RayCluster counts as idle."""

from datetime import datetime, timedelta

import msgspec
import pytest

from gpu_control_plane.api.ray.cluster import ClusterCondition, RayCluster, RayClusterStatus
from gpu_control_plane.api.ray.names import Annotation, Label
from gpu_control_plane.kube.conditions import condition
from gpu_control_plane.ray.cluster.idleness import Idleness, idle_timeout, idleness
from gpu_control_plane.ray.dashboard.models import Activity
from unit.ray.cluster.pod_world import NOW
from unit.ray.ray_clusters import ray_cluster

LIMIT = timedelta(minutes=30)


def cluster(ready: bool = True) -> RayCluster:
    """One whose head became ready at `NOW`."""
    held = condition((), ClusterCondition.HEAD_POD_READY, ready, "Test", now=NOW)
    return msgspec.structs.replace(ray_cluster(), status=RayClusterStatus(conditions=(held,)))


def look(
    after: float,
    activity: Activity | None,
    *,
    ready: bool = True,
    asked: float | None = None,
    worked: float | None = None,
) -> Idleness:
    def at(minutes: float) -> datetime:
        return NOW + timedelta(minutes=minutes)

    answered = at(after if asked is None else asked)
    until = at(worked) if worked is not None else None
    return idleness(cluster(ready), LIMIT, activity, asked_at=answered, worked_until=until, now=at(after))


IDLE = Activity(active=False)


def test_a_cluster_without_work_is_suspended_after_its_time() -> None:
    assert not look(29, IDLE).suspend
    assert look(30, IDLE).suspend


def test_the_time_begins_with_the_last_work() -> None:
    worked = Activity(active=False, last_activity=NOW + timedelta(minutes=20))
    assert not look(49, worked).suspend
    assert look(50, worked).suspend


def test_the_time_begins_when_what_was_served_is_gone() -> None:
    driver = Activity(active=False, last_activity=NOW + timedelta(minutes=1))
    assert not look(129, driver, worked=100).suspend
    assert look(130, driver, worked=100).suspend


def test_a_cluster_that_was_resumed_has_its_whole_time() -> None:
    assert not look(10, Activity(active=False, last_activity=NOW - timedelta(days=1))).suspend


def test_an_answer_from_before_that_time_is_not_enough() -> None:
    assert not look(31, IDLE, asked=29).suspend


@pytest.mark.parametrize("activity", [None, Activity(active=True)])
def test_what_is_not_known_to_be_idle_is_at_work(activity: Activity | None) -> None:
    assert look(9999, activity) == Idleness(since=None)


def test_a_cluster_whose_head_is_not_ready_is_not_idle() -> None:
    assert look(9999, IDLE, ready=False) == Idleness(since=None)


@pytest.mark.parametrize(("text", "expected"), [
    ("30m", timedelta(minutes=30)), ("1h30m", timedelta(minutes=90)), ("5s", timedelta(minutes=1)),
    ("", None), ("soon", None), ("-1m", None),
])  # fmt: skip
def test_the_annotation_says_how_long(text: str, expected: timedelta | None) -> None:
    assert idle_timeout(ray_cluster(annotations={Annotation.IDLE_TIMEOUT.value: text})) == expected


@pytest.mark.parametrize("kind", ["RayJob", "RayService"])
def test_clusters_of_jobs_and_services_are_theirs_to_end(kind: str) -> None:
    labels = {Label.ORIGINATED_FROM_KIND.value: kind}
    assert idle_timeout(ray_cluster(labels=labels, annotations={Annotation.IDLE_TIMEOUT.value: "30m"})) is None
