"""The steps from a card as it is to the card as it is ordered: only the difference, in the order a driver accepts."""

from collections.abc import Iterable, Mapping, Set

import msgspec

from gpu_control_plane.agent.backends.interface import Instance
from gpu_control_plane.agent.mig.solver import Solution, solve
from gpu_control_plane.api.allocation import MIG
from gpu_control_plane.api.gpudevice import MIGCapability
from gpu_control_plane.rules.mig_layout import Geometry, Misconfigured, PlacementTable, Slot, by_size, instance_counts


class SwitchMode(msgspec.Struct, frozen=True):
    """Switch MIG on or off."""

    enabled: bool


class Destroy(msgspec.Struct, frozen=True):
    """Remove an instance."""

    instance: Instance


class Create(msgspec.Struct, frozen=True):
    """Create an instance."""

    slot: Slot


type PartitionStep = SwitchMode | Destroy | Create


class CardUse(msgspec.Struct, frozen=True, kw_only=True):
    """A card as it is, and who uses it."""

    capability: MIGCapability | None
    instances: tuple[Instance, ...]
    holders: Mapping[Slot, str]
    """Instances that must not be touched now, and who holds them."""
    holder: str | None = None
    """Who holds the card as a whole; its mode cannot change meanwhile."""


class PartitionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and what cannot be done yet."""

    steps: tuple[PartitionStep, ...] = ()
    wanted: Geometry = frozenset()
    """The instances of the card once nothing is in the way any more."""
    waiting: str | None = None
    """Why the steps do not lead all the way."""


def plan(card: CardUse, target: MIG | None) -> PartitionPlan:
    """What brings the card closest to the target without touching what is in use; raises Misconfigured.

    No target makes the card whole again.
    """
    return _whole(card) if target is None else _partitioned(card, target)


def _partitioned(card: CardUse, target: MIG) -> PartitionPlan:
    if card.capability is None or not card.capability.capable:
        raise Misconfigured("The card cannot be partitioned into MIG instances.")
    table = PlacementTable(card.capability)
    existing = {Slot.of(instance) for instance in card.instances}
    solution = solve(table, instance_counts(table, target), existing, card.holders.keys())
    if not card.capability.enabled and card.holder:
        return PartitionPlan(wanted=solution.wanted, waiting=f"MIG mode stays off while {card.holder} holds the card.")
    switch = () if card.capability.enabled else (SwitchMode(enabled=True),)
    destroyed = _destroyed(card.instances, solution.now | card.holders.keys())
    return PartitionPlan(
        steps=(*switch, *destroyed, *(Create(slot) for slot in by_size(solution.now - existing))),
        wanted=solution.wanted,
        waiting=_why_waiting(solution, card.holders),
    )


def _whole(card: CardUse) -> PartitionPlan:
    if card.capability is None or not card.capability.enabled:
        return PartitionPlan()
    destroyed = _destroyed(card.instances, card.holders.keys())
    staying = sorted(card.holders.keys() & {Slot.of(instance) for instance in card.instances})
    if staying:
        return PartitionPlan(steps=destroyed, waiting=f"MIG mode stays on while {_in_use(staying, card.holders)}.")
    if card.holder:
        return PartitionPlan(steps=destroyed, waiting=f"MIG mode stays on while {card.holder} holds the card.")
    return PartitionPlan(steps=(*destroyed, SwitchMode(enabled=False)))


def _destroyed(instances: Iterable[Instance], staying: Set[Slot]) -> tuple[Destroy, ...]:
    """What has to go, in the reverse of the order in which it was created."""
    going = (instance for instance in instances if Slot.of(instance) not in staying)
    return tuple(Destroy(instance) for instance in sorted(going, key=Slot.of, reverse=True))


def _why_waiting(solution: Solution, holders: Mapping[Slot, str]) -> str | None:
    if not solution.in_the_way:
        return None
    in_use = _in_use(solution.in_the_way, holders)
    if solution.missing:
        return f"{', '.join(map(str, solution.missing))} cannot be created while {in_use}."
    return f"The card is partitioned as ordered, but {in_use} beside that."


def _in_use(slots: Iterable[Slot], holders: Mapping[Slot, str]) -> str:
    return " and ".join(f"{slot} is in use by {holders[slot]}" for slot in slots)
