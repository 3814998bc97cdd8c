"""The memory of what was told is bounded, and loses nothing that is not written as long as there is room for it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.kube.event_aggregator import LIMIT, EventAggregator, EventType, Happening, ObjectReference, Told

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
INTERVAL, MEMORY = timedelta(seconds=30), timedelta(seconds=360)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def happening(name: str, note: str = "it is gone") -> Happening:
    return Happening(
        ObjectReference(api_version="v1", kind="Node", name=name), EventType.WARNING, "Lost", "Reconcile", note
    )


def book(limit: int = LIMIT) -> EventAggregator:
    return EventAggregator(interval=INTERVAL, memory=MEMORY, limit=limit)


def write_due(held: EventAggregator, now: datetime) -> list[str]:
    """Write all that is due; the names of what was written."""
    names = []
    while batch := held.take_due(now, 8):
        for each, series in batch:
            held.wrote(each, series.count)
            names.append(each.regarding.name)
    return names


def test_five_thousand_nodes_with_six_events_each_fit() -> None:
    held = book()
    told = {held.tell(happening(f"node-{n}", f"cause {m}"), BEGIN) for n in range(5000) for m in range(6)}
    assert told == {Told.NEW}
    assert len(write_due(held, BEGIN)) == 30_000


def test_what_is_written_makes_room_and_what_was_repeated_last_stays_longest() -> None:
    held = book(limit=2)
    for second, name in enumerate(("a", "b", "a")):
        held.tell(happening(name), at(second * 60))
        write_due(held, at(second * 60))
    assert held.tell(happening("c"), at(200)) is Told.NEW
    assert held.tell(happening("a"), at(201)) is Told.AGAIN
    assert len(held) == 2


def test_only_where_nothing_is_written_is_something_refused() -> None:
    held = book(limit=2)
    assert [held.tell(happening(name), BEGIN) for name in "abcab"] == [
        Told.NEW, Told.NEW, Told.REFUSED, Told.AGAIN, Told.AGAIN,
    ]  # fmt: skip
    assert write_due(held, BEGIN) == ["a", "b"]
    assert held.tell(happening("c"), at(1)) is Told.NEW


@pytest.mark.parametrize(
    ("told_at", "next_due"),
    [((), 360), ((10,), 30), ((10, 20), 30), ((50,), 30)],
    ids=["never-again", "once-more", "twice-more", "much-later"],
)
def test_what_happens_again_is_due_an_interval_after_the_last_attempt(told_at: tuple[int, ...], next_due: int) -> None:
    held = book()
    held.tell(happening("a"), BEGIN)
    write_due(held, BEGIN)
    for second in told_at:
        held.tell(happening("a"), at(second))
    assert held.next_due() == at(next_due)


def test_what_could_not_be_written_is_due_again_and_what_was_told_since_with_it() -> None:
    held = book()
    held.tell(happening("a"), BEGIN)
    ((taken, _),) = held.take_due(BEGIN, 8)
    held.tell(happening("a"), at(1))
    held.put_off(taken)
    assert held.take_due(at(29), 8) == []
    ((_, series),) = held.take_due(at(30), 8)
    assert series.count == 2


def test_what_is_written_and_past_is_forgotten() -> None:
    held = book()
    held.tell(happening("a"), BEGIN)
    held.forget(at(1000))
    assert len(held) == 1
    write_due(held, at(1000))
    held.forget(at(1000))
    assert (len(held), held.next_due()) == (0, None)


moves = st.lists(
    st.tuples(st.sampled_from(["tell", "write", "fail", "forget"]), st.sampled_from("abcde"), st.integers(0, 100)),
    max_size=60,
)


@given(moves)
def test_nothing_that_was_taken_is_lost_and_nothing_grows_without_bound(
    steps: list[tuple[str, str, int]],
) -> None:
    held, second = book(limit=3), 0
    owed: dict[str, int] = {}
    for move, name, pause in steps:
        second += pause
        now = at(second)
        match move:
            case "tell" if held.tell(happening(name), now) is not Told.REFUSED:
                owed[name] = owed.get(name, 0) + 1
            case "write":
                for written in write_due(held, now):
                    del owed[written]
            case "fail":
                for each, _ in held.take_due(now, 2):
                    held.put_off(each)
            case "forget":
                held.forget(now)
        assert len(held) <= 3
        assert held.unwritten == len(owed)
    assert sorted(write_due(held, at(second + 1000))) == sorted(owed)
