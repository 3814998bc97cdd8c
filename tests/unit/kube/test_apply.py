"""Server-side apply writes only what differs, and sees every difference in the fields it owns."""

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from gpu_control_plane.kube.apply import differs
from gpu_control_plane.kube.objects import Condition

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Seen(msgspec.Struct, kw_only=True):
    """What a read type holds: other writers' fields too."""

    size: int = 0
    colour: str | None = None
    foreign: str = "theirs"
    tags: dict[str, str] = {}
    items: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    inner: "Seen | None" = None


class Owned(msgspec.Struct, kw_only=True):
    """The share of one component."""

    size: int | UnsetType = UNSET
    colour: str | UnsetType = UNSET
    tags: dict[str, str] | UnsetType = UNSET
    items: tuple[str, ...] | UnsetType = UNSET
    conditions: tuple[Condition, ...] | UnsetType = UNSET
    inner: "Owned | UnsetType" = UNSET


def _condition(kind: str, status: str = "True") -> Condition:
    return Condition(type=kind, status=status, reason="Because", last_transition_time=NOW)


READY, BUSY = _condition("Ready"), _condition("Busy")


@pytest.mark.parametrize(
    ("desired", "observed", "expected"),
    [
        (Owned(size=3), Seen(size=3), False),
        (Owned(size=3), Seen(size=4), True),
        (Owned(size=0), Seen(), False),
        (Owned(), Seen(foreign="anything"), False),
        (Owned(), Seen(colour="red"), True),
        (Owned(), Seen(size=1), True),
        (Owned(tags={"a": "1"}), Seen(tags={"a": "1", "b": "2"}), False),
        (Owned(tags={"a": "1"}), Seen(tags={"b": "2"}), True),
        (Owned(items=("x", "y")), Seen(items=("x", "y")), False),
        (Owned(items=("x",)), Seen(items=("x", "y")), True),
        (Owned(items=()), Seen(items=("x",)), True),
        (Owned(items=("ab",)), Seen(items=("ba",)), True),
        (Owned(conditions=(READY,)), Seen(conditions=(BUSY, READY)), False),
        (Owned(conditions=(READY,)), Seen(conditions=(BUSY,)), True),
        (Owned(conditions=(READY,)), Seen(conditions=(_condition("Ready", "False"),)), True),
        (Owned(inner=Owned(size=1)), Seen(inner=Seen(size=1, foreign="x")), False),
        (Owned(inner=Owned(size=1)), Seen(), True),
        (Owned(inner=Owned()), Seen(inner=Seen(colour="red")), True),
    ],
)
def test_a_write_is_needed_exactly_when_an_owned_field_differs(desired: Owned, observed: Seen, expected: bool) -> None:
    assert differs(desired, observed) is expected


def test_an_owned_field_that_the_read_type_lacks_is_a_bug_not_a_difference() -> None:
    class Other(msgspec.Struct):
        size: int = 0

    with pytest.raises(AttributeError):
        differs(Owned(colour="red"), Other())
