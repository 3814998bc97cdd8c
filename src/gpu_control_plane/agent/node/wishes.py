"""From the node's orders and the picture of its hardware to the units it should offer. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpu_control_plane.agent.mig.layout import Geometry, Slot
from gpu_control_plane.agent.mig.units import resource_names
from gpu_control_plane.agent.mig.units import units as instance_units
from gpu_control_plane.agent.node.picture import Picture, Seen
from gpu_control_plane.agent.units import CardID, ResourceName, Unit, replica_id
from gpu_control_plane.agent.views import Card
from gpu_control_plane.api.allocation import MIG, Mode
from gpu_control_plane.api.gpunodestate import Assignment, OrderProblem, ProblemReason
from gpu_control_plane.api.names import Label

_MODES: Final = frozenset({Mode.EXCLUSIVE, Mode.MIG, Mode.TIME_SLICE})
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_EXTENDED: Final = re.compile(
    rf"(?!requests\.)(?=[^/]{{1,244}}/)(?!.*kubernetes\.io/){_LABEL}(\.{_LABEL})*/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
)
"""What the kubelet takes for the name of a resource. It refuses others for ever."""
_SHOWN: Final = 80
"""Characters of such a name that are worth showing."""


def known(picture: Picture, cards: Iterable[Card]) -> dict[CardID, Seen]:
    """The cards that work and are the ones the cluster knows: another one at the same address has no approval."""
    usable: dict[CardID, Seen] = {}
    for card in cards:
        seen = picture.seen.get(card.name)
        if seen is None or seen.hardware.uuid is None or card.deleting or _ignored(card):
            continue
        expected = card.status.hardware.uuid if card.status.hardware else None
        if expected in (None, seen.hardware.uuid):
            usable[card.name] = seen
    return usable


def _ignored(card: Card) -> bool:
    """A person has taken the card out of service."""
    return card.metadata.labels.get(Label.IGNORE) == "true"


def cuts(orders: Iterable[Assignment], cards: Mapping[CardID, Seen]) -> dict[CardID, MIG | None]:
    """How cards have to be cut, or None where one has to become whole again.

    Cards without an order, or with one that is not understood, are left alone.
    """
    wishes: dict[CardID, MIG | None] = {}
    for order in orders:
        seen = cards.get(order.inventory_id)
        mode = order.allocation.mode
        if seen is not None and mode in _MODES and (mode is Mode.MIG or seen.is_cut):
            wishes[order.inventory_id] = order.allocation.mig
    return wishes


def obstacles(orders: Iterable[Assignment], cards: Mapping[CardID, Seen]) -> Iterator[OrderProblem]:
    """Orders that cannot be carried out for reasons that have nothing to do with how a card is cut."""
    for order in orders:
        mode = order.allocation.mode
        if order.inventory_id not in cards:
            message = "The node has no such card, or another one is in its place: approve that one if it is meant."
            yield OrderProblem(inventory_id=order.inventory_id, reason=ProblemReason.WAITING, message=message)
        elif mode not in _MODES:
            message = f"This agent does not know the mode {mode}: bring it to the release of the controller."
            yield OrderProblem(inventory_id=order.inventory_id, reason=ProblemReason.MISCONFIGURED, message=message)
        elif unnamed := set(order.allocation.profiles) - resource_names(order).keys():
            message = f"The order names no resource for {', '.join(sorted(unnamed))}."
            yield OrderProblem(inventory_id=order.inventory_id, reason=ProblemReason.MISCONFIGURED, message=message)
        elif refused := sorted(name for name in _names(order) if not _EXTENDED.fullmatch(name)):
            name = refused[0][:_SHOWN]
            message = f"The kubelet takes no resource called {name!r}: name it like gpu.deckhouse.io/training."
            yield OrderProblem(inventory_id=order.inventory_id, reason=ProblemReason.MISCONFIGURED, message=message)


def wanted(
    orders: Iterable[Assignment],
    cards: Mapping[CardID, Seen],
    geometries: Mapping[CardID, Geometry],
    unpooled: ResourceName | None,
) -> set[Unit]:
    """The units that the orders ask for and the hardware can give now.

    `geometries` says which instances a cut card is to offer. Cards in no pool are offered as `unpooled`, if there is
    such a resource.
    """
    ordered: dict[CardID, set[Unit]] = {}
    for order in orders:
        seen = cards.get(order.inventory_id)
        if seen is not None:
            ordered[order.inventory_id] = set(_units(order, seen, geometries.get(order.inventory_id, frozenset())))
    units = {unit for of_card in ordered.values() for unit in of_card if _EXTENDED.fullmatch(unit.resource)}
    if unpooled is not None:
        units |= {_whole(unpooled, seen) for card, seen in cards.items() if card not in ordered and not seen.is_cut}
    return units


def _names(order: Assignment) -> Iterable[ResourceName]:
    """The resources that the order really makes use of."""
    if order.allocation.mode is not Mode.MIG:
        return (order.resources[0].name,)
    return (name for profile, name in resource_names(order).items() if profile in order.allocation.profiles)


def _units(order: Assignment, seen: Seen, geometry: Geometry) -> Iterable[Unit]:
    resource = order.resources[0].name
    match order.allocation.mode:
        case Mode.MIG:
            there = (Slot.of(instance) for instance in seen.instances)
            return instance_units(order, _uuid(seen), (slot for slot in there if slot in geometry))
        case _ if seen.is_cut:
            return ()
        case Mode.TIME_SLICE if order.allocation.time_slice is not None:
            return (
                Unit(resource, replica_id(_uuid(seen), number), seen.id, Mode.TIME_SLICE)
                for number in range(order.allocation.time_slice.replicas)
            )
        case Mode.EXCLUSIVE:
            return (_whole(resource, seen),)
        case _:
            return ()


def _whole(resource: ResourceName, seen: Seen) -> Unit:
    return Unit(resource, _uuid(seen), seen.id)


def _uuid(seen: Seen) -> str:
    assert seen.hardware.uuid is not None  # noqa: S101 - only known cards get here, and those have one
    return seen.hardware.uuid
