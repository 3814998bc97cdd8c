"""What a card can be partitioned into, as its driver reports it, and what a pool asks for. Pure.

The agent partitions by it, and `pools` counts by it, before a card joins, how many units the card will give.

Nothing here knows a model of card: names, counts and places are what the driver reports. The one rule a driver does
not report as a number is that a card has a single set of media extensions, so at most one instance may be a `+me`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Protocol

import msgspec

from gpu_control_plane.api.allocation import MIG, canonical_profile
from gpu_control_plane.api.gpudevice import MIGCapability


class Misconfigured(Exception):
    """The card can never be partitioned as the order says; the sentence says why."""


class Placed(Protocol):
    """A MIG instance that exists."""

    @property
    def start(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def profile(self) -> str: ...


class Slot(msgspec.Struct, frozen=True, order=True):
    """A place on a card for an instance of one profile."""

    start: int
    """First memory slice."""
    size: int
    """Memory slices."""
    profile: str

    @classmethod
    def of(cls, instance: Placed) -> "Slot":
        return cls(instance.start, instance.size, instance.profile)

    def overlaps(self, other: "Slot") -> bool:
        return self.start < other.start + other.size and other.start < self.start + self.size

    def __str__(self) -> str:
        return f"{self.profile}@{self.start}"


type Geometry = frozenset[Slot]


def by_size(slots: Iterable[Slot]) -> list[Slot]:
    """The largest first, which is the order in which a driver finds room for all of them."""
    return sorted(slots, key=lambda slot: (-slot.size, slot))


class PlacementTable:
    """Where the driver of one card can place instances."""

    def __init__(self, capability: MIGCapability) -> None:
        self._most = {profile.name: profile.count for profile in capability.profiles}
        self._slots = {
            profile.name: tuple(Slot(start, profile.slices, profile.name) for start in sorted(set(profile.starts)))
            for profile in capability.profiles
        }

    @property
    def profiles(self) -> tuple[str, ...]:
        """In the order in which the driver lists them."""
        return tuple(self._most)

    @property
    def slices(self) -> int:
        """Memory slices of the whole card."""
        return max((slot.start + slot.size for slots in self._slots.values() for slot in slots), default=0)

    def slots(self, profile: str) -> tuple[Slot, ...]:
        return self._slots[profile]

    def most(self, profile: str) -> int:
        return self._most[profile]

    def room(self, slot: Slot, beside: Iterable[Slot]) -> bool:
        """Whether the driver would create an instance here while those others exist."""
        alike = 0
        for other in beside:
            if slot.overlaps(other) or (_media(slot.profile) and _media(other.profile)):
                return False
            alike += other.profile == slot.profile
        return alike < self._most[slot.profile]

    def geometries(self, counts: Mapping[str, int]) -> Iterator[Geometry]:
        """Every way to put so many instances of each profile on the card, the largest placed first.

        All of them are tried: a real card of eight memory slices has at most a few hundred.
        """
        order = sorted(counts, key=lambda profile: (-self._size(profile), profile))
        yield from self._extend(frozenset(), [(profile, counts[profile]) for profile in order])

    def free(self, geometry: Geometry) -> tuple[int, ...]:
        """How many places are left for further instances, counted by size, the largest first."""
        left: Counter[int] = Counter()
        for slots in self._slots.values():
            for slot in slots:
                left[slot.size] += self.room(slot, geometry)
        return tuple(left[size] for size in sorted(left, reverse=True))

    def _size(self, profile: str) -> int:
        return max((slot.size for slot in self._slots[profile]), default=0)

    def _extend(self, placed: Geometry, missing: list[tuple[str, int]]) -> Iterator[Geometry]:
        if not missing:
            yield placed
            return
        (profile, count), *others = missing
        if count > self._most[profile]:
            return
        for chosen in combinations((slot for slot in self._slots[profile] if self.room(slot, placed)), count):
            together = _together(self, placed, chosen)
            if together is not None:
                yield from self._extend(together, others)


def instance_counts(table: PlacementTable, target: MIG) -> dict[str, int]:
    """How many instances of which profile the order comes to on this card; raises Misconfigured.

    One profile means as many of it as fit.
    """
    if target.profile is not None:
        profile = canonical_profile(target.profile)
        _known(table, profile)
        return {profile: _as_many_as_fit(table, profile)}
    counts = {canonical_profile(part.profile): part.count for part in target.layout}
    for profile, count in counts.items():
        _known(table, profile)
        most = _as_many_as_fit(table, profile)
        if count > most:
            raise Misconfigured(f"The layout has {count} instances of {profile}; the card holds at most {most}.")
    _fitting(table, counts)
    return counts


def _known(table: PlacementTable, profile: str) -> None:
    if profile not in table.profiles:
        known = ", ".join(table.profiles) or "none"
        raise Misconfigured(f"The card has no profile {profile}. It has: {known}.")
    if not table.slots(profile):
        raise Misconfigured(f"The driver does not say where on the card a {profile} may be placed.")


def _as_many_as_fit(table: PlacementTable, profile: str) -> int:
    fitting = (count for count in range(table.most(profile), 0, -1) if any(table.geometries({profile: count})))
    return next(fitting)


def _fitting(table: PlacementTable, counts: Mapping[str, int]) -> None:
    """Raises Misconfigured, with the most telling reason, when there is no way to place them all."""
    media = [profile for profile in counts if _media(profile)]
    if len(media) > 1:
        raise Misconfigured(f"Only one instance of a card has the media extensions, not both {' and '.join(media)}.")
    needed = sum(table.slots(profile)[0].size * count for profile, count in counts.items())
    if needed > table.slices:
        raise Misconfigured(f"The layout needs {needed} of {table.slices} memory slices.")
    if not any(table.geometries(counts)):
        places = "; ".join(
            f"{profile} may start at {', '.join(str(slot.start) for slot in table.slots(profile))}"
            f" and takes {table.slots(profile)[0].size}"
            for profile in counts
        )
        raise Misconfigured(f"The layout does not fit the places of this card, by memory slice: {places}.")


def _together(table: PlacementTable, placed: Geometry, chosen: Iterable[Slot]) -> Geometry | None:
    """All of them on one card, or None when they are in each other's way."""
    for slot in chosen:
        if not table.room(slot, placed):
            return None
        placed |= {slot}
    return placed


def _media(profile: str) -> bool:
    return "+me" in profile
