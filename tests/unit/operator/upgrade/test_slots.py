"""How many nodes may begin: the table of NVIDIA's operator, and what holds for all numbers."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpu_control_plane.operator.upgrade.slots import free_turns, share, slots


class Numbers(msgspec.Struct, frozen=True):
    """A moment of a rollout."""

    total: int
    required: int
    in_progress: int
    unavailable: int
    parallel: int
    most: int

    @property
    def slots(self) -> int:
        return slots(
            total=self.total,
            required=self.required,
            in_progress=self.in_progress,
            unavailable=self.unavailable,
            parallel=self.parallel,
            max_unavailable=self.most,
        )


_counts = st.integers(0, 60)
_moments = st.builds(Numbers, _counts, _counts, _counts, _counts, st.integers(0, 20), _counts)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (Numbers(8, 8, 0, 0, 1, share(8, "25%")), 1),
        (Numbers(8, 8, 0, 0, 4, share(8, "25%")), 2),
        (Numbers(10, 7, 2, 2, 0, share(10, "50%")), 3),
        (Numbers(10, 9, 1, 1, 5, share(10, "30%")), 2),
        (Numbers(3, 1, 1, 1, 1, share(3, "25%")), 0),
        (Numbers(4, 4, 0, 0, 2, 0), 0),
        (Numbers(4, 4, 0, 0, 0, share(4, "100%")), 4),
        (Numbers(4, 4, 0, 2, 0, share(4, "100%")), 4),
        (Numbers(4, 2, 0, 0, 3, 4), 2),
    ],
)
def test_slots_follow_the_table(moment: Numbers, expected: int) -> None:
    assert moment.slots == expected


@pytest.mark.parametrize(
    ("of", "wanted", "expected"), [(8, "25%", 2), (9, "25%", 3), (1, "1%", 1), (0, "50%", 0), (5, "3", 3), (5, 7, 7)]
)
def test_a_share_is_rounded_up(of: int, wanted: int | str, expected: int) -> None:
    assert share(of, wanted) == expected


@given(_moments)
def test_slots_stay_within_every_bound(moment: Numbers) -> None:
    free = moment.slots
    assert 0 <= free <= min(moment.required, moment.most)
    if moment.parallel:
        assert free == 0 or moment.in_progress + free <= moment.parallel
    if moment.most < moment.total:
        assert free == 0 or moment.unavailable + free <= moment.most


@given(_moments)
def test_more_room_never_means_fewer_slots(moment: Numbers) -> None:
    if moment.parallel:
        assert replace(moment, parallel=moment.parallel + 1).slots >= moment.slots
    assert replace(moment, most=moment.most + 1).slots >= moment.slots
    assert replace(moment, in_progress=moment.in_progress + 1).slots <= moment.slots
    assert replace(moment, unavailable=moment.unavailable + 1).slots <= moment.slots


@given(_moments)
def test_a_node_out_of_service_needs_a_turn_and_nothing_else(moment: Numbers) -> None:
    turns = free_turns(required=moment.required, in_progress=moment.in_progress, parallel=moment.parallel)
    assert moment.slots <= turns <= moment.required
    assert replace(moment, most=moment.total, unavailable=0).slots == min(turns, moment.total) or moment.total == 0
