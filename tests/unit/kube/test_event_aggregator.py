"""The memory of Events is bounded, and drops none that is not written as long as there is room for it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.kube.event_aggregator import (
    LIMIT,
    PROMPT_LIMIT,
    EventAggregator,
    EventKey,
    EventType,
    ObjectReference,
    RecordResult,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
INTERVAL, MEMORY = timedelta(seconds=30), timedelta(seconds=360)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def event(name: str, note: str = "it is gone") -> EventKey:
    return EventKey(
        ObjectReference(api_version="v1", kind="Node", name=name), EventType.WARNING, "Lost", "Reconcile", note
    )


def aggregator(limit: int = LIMIT) -> EventAggregator:
    return EventAggregator(interval=INTERVAL, memory=MEMORY, limit=limit)


def write_due(held: EventAggregator, now: datetime) -> list[str]:
    """Write all that is due; the names of what was written."""
    names = []
    while batch := held.take_due(now, 8):
        for each, series in batch:
            held.mark_written(each, series.count)
            names.append(each.regarding.name)
    return names


def test_five_thousand_nodes_with_six_events_each_fit() -> None:
    held = aggregator()
    results = {held.record(event(f"node-{n}", f"cause {m}"), BEGIN) for n in range(5000) for m in range(6)}
    assert results == {RecordResult.NEW}
    assert len(write_due(held, BEGIN)) == 30_000


def test_a_written_series_makes_room_and_the_one_repeated_last_stays_longest() -> None:
    held = aggregator(limit=2)
    for second, name in enumerate(("a", "b", "a")):
        held.record(event(name), at(second * 60))
        write_due(held, at(second * 60))
    assert held.record(event("c"), at(200)) is RecordResult.NEW
    assert held.record(event("a"), at(201)) is RecordResult.REPEATED
    assert len(held) == 2


def test_an_event_is_refused_only_where_no_series_is_written() -> None:
    held = aggregator(limit=2)
    assert [held.record(event(name), BEGIN) for name in "abcab"] == [
        RecordResult.NEW, RecordResult.NEW, RecordResult.REFUSED, RecordResult.REPEATED, RecordResult.REPEATED,
    ]  # fmt: skip
    assert write_due(held, BEGIN) == ["a", "b"]
    assert held.record(event("c"), at(1)) is RecordResult.NEW


@pytest.mark.parametrize(
    ("recorded_at", "next_due"),
    [((), 360), ((10,), 30), ((10, 20), 30), ((50,), 30)],
    ids=["never-again", "once-more", "twice-more", "much-later"],
)
def test_a_repeated_event_is_due_an_interval_after_the_last_write(recorded_at: tuple[int, ...], next_due: int) -> None:
    held = aggregator()
    held.record(event("a"), BEGIN)
    write_due(held, BEGIN)
    for second in recorded_at:
        held.record(event("a"), at(second))
    assert held.next_due() == at(next_due)


def test_a_repetition_is_due_at_once_where_another_event_about_the_object_came_in_between() -> None:
    held = aggregator()
    for second, note in enumerate(("broken", "works again", "broken", "works again")):
        held.record(event("a", note), at(second))
        ((key, series),) = held.take_due(at(second), 8)
        assert (key.note, series.last) == (note, at(second))
        held.mark_written(key, series.count)
    held.record(event("b", "broken"), at(4))
    write_due(held, at(4))
    held.record(event("a", "works again"), at(5))
    assert write_due(held, at(5)) == []


def test_a_repetition_while_the_event_is_being_written_is_due_when_that_is_done() -> None:
    held = aggregator()
    held.record(event("a", "broken"), BEGIN)
    ((broken, _),) = held.take_due(BEGIN, 8)
    held.record(event("a", "works again"), at(1))
    held.record(event("a", "broken"), at(2))
    held.mark_written(broken, 1)
    assert sorted((key.note, series.count) for key, series in held.take_due(at(2), 8)) == [
        ("broken", 2),
        ("works again", 1),
    ]


def test_events_that_take_turns_all_the_time_are_written_slowly() -> None:
    held, writes = aggregator(), 0
    for second in range(300):
        held.record(event("a", "broken" if second % 2 else "works again"), at(second))
        writes += len(write_due(held, at(second)))
    assert writes <= 2 * (1 + PROMPT_LIMIT + 300 // 30)


def test_an_event_that_could_not_be_written_is_due_again_with_what_was_recorded_since() -> None:
    held = aggregator()
    held.record(event("a"), BEGIN)
    ((taken, _),) = held.take_due(BEGIN, 8)
    held.record(event("a"), at(1))
    held.postpone(taken)
    assert held.take_due(at(29), 8) == []
    ((_, series),) = held.take_due(at(30), 8)
    assert series.count == 2


def test_a_written_series_is_forgotten_when_it_is_not_repeated() -> None:
    held = aggregator()
    held.record(event("a"), BEGIN)
    held.forget(at(1000))
    assert len(held) == 1
    write_due(held, at(1000))
    held.forget(at(1000))
    assert (len(held), held.next_due()) == (0, None)


moves = st.lists(
    st.tuples(st.sampled_from(["record", "write", "fail", "forget"]), st.sampled_from("abcde"), st.integers(0, 100)),
    max_size=60,
)


@given(moves)
def test_no_accepted_event_is_lost_and_the_memory_stays_bounded(
    steps: list[tuple[str, str, int]],
) -> None:
    held, second = aggregator(limit=3), 0
    owed: dict[str, int] = {}
    for move, name, pause in steps:
        second += pause
        now = at(second)
        match move:
            case "record" if held.record(event(name), now) is not RecordResult.REFUSED:
                owed[name] = owed.get(name, 0) + 1
            case "write":
                for written in write_due(held, now):
                    del owed[written]
            case "fail":
                for each, _ in held.take_due(now, 2):
                    held.postpone(each)
            case "forget":
                held.forget(now)
        assert len(held) <= 3
        assert held.unwritten == len(owed)
    assert sorted(write_due(held, at(second + 1000))) == sorted(owed)
