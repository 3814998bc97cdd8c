"""The slow truth: every set of places a driver would accept, tried one by one."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, combinations, product

from gpu_control_plane.api.gpudevice import MIGCapability
from gpu_control_plane.rules.mig_layout import Geometry, Slot


def legal(card: MIGCapability, geometry: Iterable[Slot]) -> bool:
    """Whether these instances can exist together."""
    placed = list(geometry)
    slices = [piece for slot in placed for piece in range(slot.start, slot.start + slot.size)]
    counts = Counter(slot.profile for slot in placed)
    return (
        len(slices) == len(set(slices))
        and all(counts[profile.name] <= profile.count for profile in card.profiles)
        and sum("+me" in slot.profile for slot in placed) <= 1
    )


def every_slot(card: MIGCapability) -> list[Slot]:
    return [Slot(start, profile.slices, profile.name) for profile in card.profiles for start in profile.starts]


def geometries(card: MIGCapability, counts: Mapping[str, int]) -> Iterator[Geometry]:
    """Every legal geometry with exactly these instances."""
    places = {
        profile.name: [slot for slot in every_slot(card) if slot.profile == profile.name] for profile in card.profiles
    }
    for chosen in product(*(combinations(places[profile], count) for profile, count in counts.items())):
        geometry = frozenset(chain.from_iterable(chosen))
        if legal(card, geometry):
            yield geometry


def most_now(card: MIGCapability, wanted: Geometry, existing: Geometry, in_use: Geometry) -> tuple[int, int]:
    """The most memory slices, and then instances, of a geometry that can exist beside what is in use."""
    fixed = existing & in_use
    parts = (frozenset(part) for size in range(len(wanted) + 1) for part in combinations(wanted, size))
    return max((sum(slot.size for slot in part), len(part)) for part in parts if legal(card, part | fixed))
