"""When a pod that waits is told why: once for each cause, and never in a flood."""

from datetime import UTC, datetime, timedelta

import pytest

from gpu_control_plane.pools.explain.explanation import Cause, Explanation
from gpu_control_plane.pools.pending_pods import Told, silence
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
