"""When a pod that waits is told why: once for each cause, and never in a flood."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.pools.explain.explanation import Cause, Explanation
from gpu_control_plane.pools.pending_pods import Told, silence, told_before
from gpu_control_plane.pools.snapshot import Settings

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
SETTINGS = Settings(pending_pod_interval=timedelta(seconds=10), pending_pod_repeat_after=timedelta(minutes=45))


def found(cause: Cause, pool: str = "training") -> Explanation:
    return Explanation(cause=cause, pool=pool, sentence="", user="")


@pytest.mark.parametrize(
    ("explanation", "times", "left"),
    [
        (found(Cause.NO_FREE_UNIT), 1, timedelta(minutes=45)),
        (found(Cause.NO_FREE_UNIT), 9, timedelta(minutes=45)),
        (found(Cause.CORDONED), 1, timedelta(seconds=10)),
        (found(Cause.NO_FREE_UNIT, "other"), 1, timedelta(seconds=10)),
        (found(Cause.CORDONED), 3, timedelta(seconds=40)),
        (found(Cause.CORDONED), 1000, timedelta(minutes=5)),
    ],
    ids=[
        "the same cause",
        "the same, often",
        "another cause",
        "another pool",
        "the third change",
        "the 1,000th change",
    ],
)
def test_another_cause_is_told_soon_and_the_same_one_only_before_its_event_expires(
    explanation: Explanation, times: int, left: timedelta
) -> None:
    told = Told(found(Cause.NO_FREE_UNIT).action, NOON, times)
    assert silence(explanation, told, NOON, SETTINGS) == left
    assert silence(explanation, told, NOON + left, SETTINGS) == timedelta()


def test_a_cause_that_changes_to_and_fro_for_an_hour_is_told_sixteen_times() -> None:
    causes, told, now = (Cause.NO_FREE_UNIT, Cause.NOT_ON_ONE_NODE), Told("", NOON, 0), NOON
    for second in range(3600):
        now = NOON + timedelta(seconds=second)
        explanation = found(causes[second % 2])
        if not silence(explanation, told, now, SETTINGS):
            told = Told(explanation.action, now, told.times + 1)
    assert told.times <= 16


POD = WaitingPod(metadata=ObjectMeta(name="train", namespace="team-a", uid="u-1"))


def event(namespace: str = "team-a", at: str = "2026-03-02T11:00:00Z", action: str = "NoFreeUnit/training") -> Event:
    body = {
        "metadata": {"namespace": namespace},
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "train", "namespace": namespace, "uid": "u-1"},
        "action": action,
        "eventTime": at,
    }
    return msgspec.convert(body, Event)


def test_a_new_leader_knows_what_pods_were_told() -> None:
    told = told_before([event(action="Maintenance/training"), event()], [POD], NOON)
    assert told == {"u-1": Told("NoFreeUnit/training", NOON - timedelta(hours=1), 2)}


def test_events_of_another_namespace_silence_no_pod() -> None:
    assert told_before([event("team-b")], [POD], NOON) == {}


@pytest.mark.parametrize("at", ["2026-03-02T13:00:00Z", "9999-12-31T23:59:59.999999Z", "never"])
def test_an_event_with_an_impossible_time_silences_no_longer_than_one_of_now(at: str) -> None:
    told = told_before([event(at=at)], [POD], NOON)["u-1"]
    assert silence(found(Cause.NO_FREE_UNIT), told, NOON, SETTINGS) <= timedelta(minutes=45)
