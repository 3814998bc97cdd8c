"""From the node's orders and its hardware to the units that it should advertise. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot, ObservedCard
from gpu_control_plane.agent.mig.units import resource_names
from gpu_control_plane.agent.mig.units import units as instance_units
from gpu_control_plane.agent.units import CardID, ResourceName, Unit, replica_id
from gpu_control_plane.agent.views import DeviceView
from gpu_control_plane.api.allocation import MIG, Mode
from gpu_control_plane.api.gpunodestate import Assignment, OrderProblem, ProblemReason
from gpu_control_plane.api.names import Label
from gpu_control_plane.rules.mig_layout import Geometry, Slot

_MODES: Final = frozenset({Mode.EXCLUSIVE, Mode.MIG, Mode.TIME_SLICE})
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_EXTENDED_RESOURCE: Final = re.compile(
    rf"(?!requests\.)(?=[^/]{{1,244}}/)(?!.*kubernetes\.io/){_LABEL}(\.{_LABEL})*/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
)
"""The names that the kubelet accepts for an extended resource. It never accepts any other."""
_SHOWN_CHARACTERS: Final = 80
"""How much of such a name is worth showing."""


def usable_cards(hardware: HardwareSnapshot, devices: Iterable[DeviceView]) -> dict[CardID, ObservedCard]:
    """The cards that a pod may be given: present, in service, and the ones that the API server knows. Another card at
    the address of an approved one has no approval."""
    usable: dict[CardID, ObservedCard] = {}
    for device in devices:
        card = hardware.observed.get(device.name)
        if card is None or card.hardware.uuid is None or device.deleting or _ignored(device):
            continue
        expected = device.status.hardware.uuid if device.status.hardware else None
        if expected in (None, card.hardware.uuid):
            usable[device.name] = card
    return usable


def _ignored(device: DeviceView) -> bool:
    """A person has taken the card out of service."""
    return device.metadata.labels.get(Label.IGNORE) == "true"


def mig_targets(orders: Iterable[Assignment], cards: Mapping[CardID, ObservedCard]) -> dict[CardID, MIG | None]:
    """How cards have to be partitioned; None where a partitioned card has to become whole again.

    Cards without an order, or with a mode that this agent does not know, stay as they are.
    """
    targets: dict[CardID, MIG | None] = {}
    for order in orders:
        card = cards.get(order.inventory_id)
        mode = order.allocation.mode
        if card is not None and mode in _MODES and (mode is Mode.MIG or card.mig_enabled):
            targets[order.inventory_id] = order.allocation.mig
    return targets


def order_problems(orders: Iterable[Assignment], cards: Mapping[CardID, ObservedCard]) -> Iterator[OrderProblem]:
    """Orders that cannot be carried out for reasons other than MIG."""
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
        elif refused := sorted(name for name in _used_names(order) if not _EXTENDED_RESOURCE.fullmatch(name)):
            name = refused[0][:_SHOWN_CHARACTERS]
            message = f"The kubelet takes no resource called {name!r}: name it like gpu.deckhouse.io/training."
            yield OrderProblem(inventory_id=order.inventory_id, reason=ProblemReason.MISCONFIGURED, message=message)


def desired_units(
    orders: Iterable[Assignment],
    cards: Mapping[CardID, ObservedCard],
    geometries: Mapping[CardID, Geometry],
    unpooled: ResourceName | None,
) -> set[Unit]:
    """The units that the orders ask for and the hardware can give now.

    `geometries` says which MIG instances a partitioned card is to advertise. Cards in no pool are advertised as
    `unpooled`, if there is such a resource.
    """
    ordered: dict[CardID, set[Unit]] = {}
    for order in orders:
        card = cards.get(order.inventory_id)
        if card is not None:
            ordered[order.inventory_id] = set(_units(order, card, geometries.get(order.inventory_id, frozenset())))
    units = {unit for of_card in ordered.values() for unit in of_card if _EXTENDED_RESOURCE.fullmatch(unit.resource)}
    if unpooled is not None:
        free = (card for name, card in cards.items() if name not in ordered and not card.mig_enabled)
        units |= {_whole(unpooled, card) for card in free}
    return units


def _used_names(order: Assignment) -> Iterable[ResourceName]:
    """The resources that the order really makes use of."""
    if order.allocation.mode is not Mode.MIG:
        return (order.resources[0].name,)
    return (name for profile, name in resource_names(order).items() if profile in order.allocation.profiles)


def _units(order: Assignment, card: ObservedCard, geometry: Geometry) -> Iterable[Unit]:
    resource = order.resources[0].name
    match order.allocation.mode:
        case Mode.MIG:
            present = (Slot.of(instance) for instance in card.instances)
            return instance_units(order, _uuid(card), (slot for slot in present if slot in geometry))
        case _ if card.mig_enabled:
            return ()
        case Mode.TIME_SLICE if order.allocation.time_slice is not None:
            return (
                Unit(resource, replica_id(_uuid(card), number), card.id, Mode.TIME_SLICE)
                for number in range(order.allocation.time_slice.replicas)
            )
        case Mode.EXCLUSIVE:
            return (_whole(resource, card),)
        case _:
            return ()


def _whole(resource: ResourceName, card: ObservedCard) -> Unit:
    return Unit(resource, _uuid(card), card.id)


def _uuid(card: ObservedCard) -> str:
    assert card.hardware.uuid is not None  # noqa: S101 - only usable cards get here, and those have one
    return card.hardware.uuid
