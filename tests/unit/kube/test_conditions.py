"""Conditions keep their transition time while their status stays."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.kube.conditions import condition, find, is_true
from gpu_control_plane.kube.objects import Condition

THEN = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=20))
def test_transition_time_moves_only_with_the_status(statuses: list[bool | None]) -> None:
    held: list[Condition] = []
    changed_at, before = THEN, object()
    for hour, status in enumerate(statuses):
        now = THEN + timedelta(hours=hour)
        new = condition(held, "Ready", status, "Because", f"at {hour}", generation=hour, now=now)
        if status is not before:
            changed_at, before = now, status
        assert new.last_transition_time == changed_at
        assert (new.message, new.observed_generation) == (f"at {hour}", hour)
        held = [new]


def test_a_condition_is_found_by_its_type() -> None:
    ready = condition([], "Ready", True, "Because", now=THEN)
    broken = condition([], "Broken", None, "NotAsked", now=THEN)
    assert find([ready, broken], "Broken") == broken
    assert broken.status == "Unknown"
    assert is_true([ready, broken], "Ready")
    assert not is_true([ready, broken], "Broken")
    assert not is_true([], "Ready")
