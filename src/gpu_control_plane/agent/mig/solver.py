"""Where on a card the wanted instances go, with as little change as can be.

What is in use is never touched, so a target may have to wait. One that waits is still aimed at one whole geometry, of
which everything that has room is created now: as pods end, the rest follows, and nothing that was created on the way
has to go again.
"""

from collections.abc import Mapping, Set

import msgspec

from gpu_control_plane.rules.mig_layout import Geometry, PlacementTable, Slot, by_size


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """A geometry to aim at, and how much of it can be had."""

    wanted: Geometry
    """The card once nothing is in the way any more."""
    now: Geometry
    """The part of it that can exist beside what is in use."""
    in_the_way: tuple[Slot, ...]
    """Instances in use that are not wanted: they go when their users do."""

    @property
    def missing(self) -> tuple[Slot, ...]:
        """What cannot be created yet."""
        return tuple(sorted(self.wanted - self.now))


def solve(table: PlacementTable, counts: Mapping[str, int], existing: Set[Slot], in_use: Set[Slot]) -> Solution:
    """The best geometry for counts that fit the card (`instance_counts` has made sure of it).

    In this order it keeps the most of what is in use, of equally many the largest, reaches the most memory and then the
    most instances now, destroys the fewest idle instances, and leaves the largest places free. What is kept comes
    before what can be reached, since that changes as users leave, and the aim must not. An instance in use that does
    not exist (a pod survived the reset of its card) is nothing to wait for, but its place is kept where possible.
    """

    def cost(wanted: Geometry) -> tuple[object, ...]:
        now = _reachable(table, wanted, existing, in_use)
        kept = wanted & in_use
        return (
            -len(kept),
            [(-slot.size, slot) for slot in by_size(kept)],
            -sum(slot.size for slot in now),
            -len(now),
            -len(wanted & existing),
            tuple(-places for places in table.free(wanted)),
            sorted(wanted),
        )

    wanted = min(table.geometries(counts), key=cost)
    return Solution(
        wanted=wanted,
        now=_reachable(table, wanted, existing, in_use),
        in_the_way=tuple(sorted((existing & in_use) - wanted)),
    )


def _reachable(table: PlacementTable, wanted: Geometry, existing: Set[Slot], in_use: Set[Slot]) -> Geometry:
    """The wanted instances that exist, and those that have room beside them and beside what is in use."""
    now = wanted & existing
    fixed = existing & in_use
    for slot in by_size(wanted - existing):
        if table.room(slot, fixed | now):
            now |= {slot}
    return now
