"""Which cards a pod gets: the kubelet's choice, made the same way every time.

Cards of one NUMA node are kept together, and a pod that needs few takes them where few are left, so that whole
halves of a machine stay free for those that need many.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

_NOWHERE: Final = -1


class Spot(msgspec.Struct, frozen=True, order=True):
    """A card that could be chosen."""

    address: str
    card: str
    numa_node: int = _NOWHERE


class Need(msgspec.Struct, frozen=True):
    """So many cards of a resource for one container."""

    container: str
    resource: str
    count: int


class Grant(msgspec.Struct, frozen=True, order=True):
    """The cards a container got."""

    container: str
    resource: str
    cards: tuple[str, ...]


class Shortage(msgspec.Struct, frozen=True):
    """A pod was sent here for cards that are not here."""

    resource: str
    wanted: int
    available: int

    def __str__(self) -> str:
        return (
            f"the pod was bound here for {self.wanted} of {self.resource}, but {self.available} can be handed out;"
            " the node offered more when the pod was scheduled"
        )


def place(needs: Sequence[Need], free: Mapping[str, Sequence[Spot]]) -> tuple[Grant, ...] | Shortage:
    """The cards for each container of a pod, all or nothing; `free` are the cards on offer by resource."""
    left = {resource: list(spots) for resource, spots in free.items()}
    grants: list[Grant] = []
    for need in needs:
        spots = left.get(need.resource, [])
        if len(spots) < need.count:
            wanted = sum(other.count for other in needs if other.resource == need.resource)
            return Shortage(need.resource, wanted, len(free.get(need.resource, ())))
        chosen = choose(need.count, spots)
        left[need.resource] = [spot for spot in spots if spot not in chosen]
        grants.append(Grant(need.container, need.resource, tuple(spot.card for spot in chosen)))
    return tuple(grants)


def choose(count: int, spots: Sequence[Spot]) -> list[Spot]:
    """The best `count` of the spots: from the fullest NUMA node that has enough, else from as few as possible."""
    groups: dict[int, list[Spot]] = defaultdict(list)
    for spot in sorted(spots):
        groups[spot.numa_node].append(spot)
    enough = [group for group in groups.values() if len(group) >= count]
    if enough:
        return min(enough, key=len)[:count]
    chosen: list[Spot] = []
    for group in sorted(groups.values(), key=len, reverse=True):
        chosen += group[: count - len(chosen)]
    return sorted(chosen)
