"""The writes for the cards of a node: those that are there, those that moved, those that left.

A card that the driver does not show has an object as well, once the agent says where on the bus it is: without one no
person could take it out of service, and its node would never be complete. Nothing is known of it, so no pool has it.
"""

from collections.abc import Collection, Mapping

import msgspec

from gpu_control_plane.api import GPUDevice, inventory_id
from gpu_control_plane.api.gpudevice import DeviceSpec, Hardware
from gpu_control_plane.api.gpunodestate import MAX_CARDS
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.inventory import events
from gpu_control_plane.inventory.labels import device_labels
from gpu_control_plane.inventory.moves import carry_over, in_order, origins
from gpu_control_plane.inventory.plan import (
    CardAction,
    CardWork,
    DeleteDevice,
    DropApproval,
    WriteDevice,
    WriteHardware,
)
from gpu_control_plane.inventory.report import Report
from gpu_control_plane.inventory.sameness import is_another_card, what_is_known
from gpu_control_plane.inventory.snapshot import Snapshot


class Cards(msgspec.Struct, frozen=True):
    """What there is to do, and the cards that the node has after it."""

    work: tuple[CardWork, ...]
    after: Mapping[str, Hardware | None]


def plan_cards(seen: Snapshot, report: Report) -> Cards:
    """A card leaves when the whole bus is reported without it, or when it is reported at another place. One that only
    the bus shows takes such a place after that."""
    known = seen.known
    reported = {card.pci.address: card for card in report.cards}
    came_from = origins(known, reported)
    leaving = _leaving(known, reported, report)
    works = {address: _card(seen, card, came_from.get(address)) for address, card in reported.items()}
    uuids = {card.uuid for card in report.cards if card.uuid}
    works |= {address: removal(seen, known[address], uuids) for address in leaving}
    unseen = _unseen(report, reported, leaving)
    works |= {address: _place(seen, address) for address in unseen}
    after = dict.fromkeys(unseen)
    after |= {address: device.status.hardware for address, device in known.items() if address not in leaving}
    after |= {address: _hardware(known.get(address), card) for address, card in reported.items()}
    return Cards(in_order(works, came_from), after)


def removal(seen: Snapshot, device: GPUDevice, here: Collection[str] = ()) -> CardWork:
    """Forget a card that left. `here` are the UUIDs on the node: one that has only moved tells so at its new place."""
    hardware = device.status.hardware
    uuid = hardware.uuid if hardware is not None else None
    if uuid is not None and uuid in here:
        return CardWork(actions=(DeleteDevice(device, seen.about),))
    other = seen.elsewhere.get(uuid) if uuid is not None else None
    approval = device.metadata.annotations.get(Annotation.ASSIGNMENT)
    tell = events.removed(device, approval, other.node if other is not None else None)
    return CardWork(actions=(DeleteDevice(device, seen.about, tell),))


def _leaving(known: Mapping[str, GPUDevice], reported: Mapping[str, Hardware], report: Report) -> set[str]:
    absent = known.keys() - reported.keys()
    if report.complete:
        return absent
    on_bus = {card.address for card in report.bus} if report.bus is not None else absent
    uuids = {card.uuid for card in reported.values() if card.uuid}
    return {address for address in absent if address not in on_bus or _uuid(known[address]) in uuids}


def _unseen(report: Report, reported: Mapping[str, Hardware], leaving: set[str]) -> list[str]:
    """Addresses of cards that the bus alone shows. A node may have so many cards and no more; those with a driver
    come first."""
    places = (place.address for place in report.bus or ())
    unseen = [address for address in places if address not in reported and address not in leaving]
    return unseen[: max(MAX_CARDS - len(reported), 0)]


def _place(seen: Snapshot, address: str) -> CardWork:
    """The writes for a card that only the bus shows: an object. What its driver had told before, if it had, stays."""
    name = inventory_id(seen.node, address)
    device = next((held for held in seen.devices if held.name == name), None)
    labels = device_labels(seen.node, None)
    if device is not None and (device.deleting or device.status.hardware is not None or _carries(device, labels)):
        return CardWork(actions=())
    return CardWork(actions=(WriteDevice(name, DeviceSpec(node_name=seen.node, pci_address=address), labels),))


def _carries(device: GPUDevice, labels: Mapping[str, str]) -> bool:
    return all(device.metadata.labels.get(label) == value for label, value in labels.items())


def _card(seen: Snapshot, card: Hardware, origin: GPUDevice | None) -> CardWork:
    """The writes for a card that is there.

    An exchanged card loses the approval before anything else: until the new hardware is written the exchange is
    noticed again, whatever happens in between. Labels come before hardware, since selectors approve by them. A moved
    card gets what was said of it before its hardware, too, since that ends the move.
    """
    name = inventory_id(seen.node, card.pci.address)
    device = next((held for held in seen.devices if held.name == name), None)
    if device is not None and device.deleting:
        return CardWork(actions=())
    known = device.status.hardware if device is not None else None
    exchanged = is_another_card(known, card)
    hardware = _hardware(device, card)
    labels = device_labels(seen.node, hardware)
    actions: list[CardAction] = []
    approval = device.metadata.annotations.get(Annotation.ASSIGNMENT) if device is not None else None
    marks = carry_over(name, device, origin) if origin is not None else None
    if marks is not None and device is not None:
        actions.append(marks)
    elif exchanged and device is not None and approval is not None and origin is None:
        actions.append(DropApproval(device))
    if device is None or not _carries(device, labels):
        actions.append(WriteDevice(name, DeviceSpec(node_name=seen.node, pci_address=card.pci.address), labels))
    if marks is not None and device is None:
        actions.append(marks)
    if hardware != known:
        actions.append(WriteHardware(name, hardware, _tell(seen, known, card, approval, origin)))
    guarded = exchanged or (device is not None and marks is not None)
    return CardWork(actions=tuple(actions), observed=device if guarded else None)


def _tell(
    seen: Snapshot, known: Hardware | None, card: Hardware, approval: str | None, origin: GPUDevice | None
) -> events.Tell | None:
    if origin is not None:
        return events.moved(card, origin, origin.metadata.annotations.get(Annotation.ASSIGNMENT))
    if known is None:
        first = not any(device.status.hardware for device in seen.known.values())
        return events.detected(card, seen.node, first=first)
    return events.replaced(known, card, approval) if is_another_card(known, card) else None


def _hardware(device: GPUDevice | None, card: Hardware) -> Hardware:
    known = device.status.hardware if device is not None else None
    return card if is_another_card(known, card) else what_is_known(known, card)


def _uuid(device: GPUDevice) -> str | None:
    return device.status.hardware.uuid if device.status.hardware is not None else None
