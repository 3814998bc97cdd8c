"""The writes for the cards of a node: those that are there, those that moved, those that left.

A card that the driver does not show has a GPUDevice as well, once the agent reports its address on the bus: without
one no person could set the label ignore, and its node would never be complete. Nothing is known of such a card, so no
pool gets it.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from gpu_control_plane.api import GPUDevice, inventory_id
from gpu_control_plane.api.gpudevice import DeviceSpec, Hardware
from gpu_control_plane.api.gpunodestate import MAX_CARDS
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.api.selectors import matches_labels
from gpu_control_plane.inventory import events
from gpu_control_plane.inventory.approvals import agrees, approval_for, followed, settled
from gpu_control_plane.inventory.identity import carry_over, is_replaced, merged_hardware, origins, uuid_of
from gpu_control_plane.inventory.plan import (
    CardAction,
    CardWork,
    DeleteDevice,
    DropApproval,
    WriteDevice,
    WriteHardware,
    in_order,
)
from gpu_control_plane.inventory.report import Report
from gpu_control_plane.inventory.snapshot import Snapshot

UNKNOWN: Final = "unknown"

_MAX_LABEL: Final = 63
_DIGEST: Final = 8


class Cards(msgspec.Struct, frozen=True):
    """What there is to write, and the cards that the node has afterwards, by address."""

    work: tuple[CardWork, ...]
    after: Mapping[str, Hardware | None]
    ignored: frozenset[str]
    """The addresses of those of them that carry the label ignore."""


def plan_cards(snapshot: Snapshot, report: Report) -> Cards:
    """A card leaves when the whole bus is reported without it, or when it is reported at another address. A card that
    only the bus shows takes such an address after that."""
    known = snapshot.known
    reported = {card.pci.address: card for card in report.cards}
    came_from = origins(known, reported)
    leaving = _leaving(known, reported, report)
    works = {address: _card(snapshot, card, came_from.get(address)) for address, card in reported.items()}
    uuids = {card.uuid for card in report.cards if card.uuid}
    works |= {address: removal(snapshot, known[address], uuids) for address in leaving}
    bus_only = _bus_only(report, reported, leaving)
    works |= {address: _card_without_driver(snapshot, address) for address in bus_only}
    after = dict.fromkeys(bus_only)
    after |= {address: device.status.hardware for address, device in known.items() if address not in leaving}
    after |= {address: _hardware(known.get(address), card) for address, card in reported.items()}
    ignored = ignored_cards(known) | {address for address, origin in came_from.items() if origin.ignored}
    return Cards(in_order(works, came_from), after, ignored & after.keys())


def ignored_cards(known: Mapping[str, GPUDevice]) -> frozenset[str]:
    return frozenset(address for address, device in known.items() if device.ignored)


def removal(snapshot: Snapshot, device: GPUDevice, here: Collection[str] = ()) -> CardWork:
    """Delete the GPUDevice of a card that left. `here` are the UUIDs on the node: a card that has only moved has its
    Event at its new address."""
    uuid = uuid_of(device)
    if uuid is not None and uuid in here:
        return CardWork(actions=(DeleteDevice(device, snapshot.about),))
    other = snapshot.duplicates.get(uuid) if uuid is not None else None
    approval = device.metadata.annotations.get(Annotation.ASSIGNMENT)
    event = events.removed(device, approval, other.node if other is not None else None)
    return CardWork(actions=(DeleteDevice(device, snapshot.about, event),))


def device_labels(node: str, card: Hardware | None) -> dict[str, str]:
    """The labels of a GPUDevice, which approval selectors and `kubectl get -l` choose by. All of them are always set,
    to `unknown` if need be, so that no other field manager comes to own one."""
    return {
        Label.NODE.value: label_value(node),
        Label.VENDOR.value: label_value(card.vendor if card else ""),
        Label.PRODUCT.value: label_value(card.product if card else ""),
        Label.ARCHITECTURE.value: label_value((card.architecture if card else None) or ""),
    }


def label_value(text: str) -> str:
    """`NVIDIA H200` as `NVIDIA-H200`: a valid label value. A long text is cut, and a digest keeps it unique."""
    value = _without_edges(re.sub(r"[^A-Za-z0-9_.-]+", "-", text))
    if len(value) > _MAX_LABEL:
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
        value = f"{_without_edges(value[: _MAX_LABEL - _DIGEST - 1])}-{digest}"
    return value or UNKNOWN


def _without_edges(value: str) -> str:
    return value.strip("-_.")


def _leaving(known: Mapping[str, GPUDevice], reported: Mapping[str, Hardware], report: Report) -> set[str]:
    absent = known.keys() - reported.keys()
    if report.complete:
        return absent
    on_bus = {card.address for card in report.bus} if report.bus is not None else absent
    uuids = {card.uuid for card in reported.values() if card.uuid}
    return {address for address in absent if address not in on_bus or uuid_of(known[address]) in uuids}


def _bus_only(report: Report, reported: Mapping[str, Hardware], leaving: set[str]) -> list[str]:
    """Addresses of cards that the bus alone shows. A node has at most `MAX_CARDS`; those with a driver come first."""
    on_bus = (card.address for card in report.bus or ())
    bus_only = [address for address in on_bus if address not in reported and address not in leaving]
    return bus_only[: max(MAX_CARDS - len(reported), 0)]


def _card_without_driver(snapshot: Snapshot, address: str) -> CardWork:
    """The writes for a card that only the bus shows: its GPUDevice. What the driver told of it earlier stays."""
    name = inventory_id(snapshot.node, address)
    device = next((held for held in snapshot.devices if held.name == name), None)
    labels = device_labels(snapshot.node, None)
    if device is not None and (
        device.deleting or device.status.hardware is not None or matches_labels(labels, device.metadata.labels)
    ):
        return CardWork(actions=())
    return CardWork(actions=(WriteDevice(name, DeviceSpec(node_name=snapshot.node, pci_address=address), labels),))


def _card(snapshot: Snapshot, card: Hardware, origin: GPUDevice | None) -> CardWork:
    """The writes for a card that is there.

    A replaced card loses the approval before anything else: until the new hardware is written, the replacement is
    noticed again, whatever happens in between. Labels come before hardware, since selectors approve by them. A moved
    card gets its annotations and labels before its hardware, since the hardware ends the move; so does one that was
    approved before it was there, since without hardware no pool takes it. Its GPUApproval goes last.
    """
    name = inventory_id(snapshot.node, card.pci.address)
    device = next((held for held in snapshot.devices if held.name == name), None)
    if device is not None and device.deleting:
        return CardWork(actions=())
    known = device.status.hardware if device is not None else None
    replaced = is_replaced(known, card)
    hardware = _hardware(device, card)
    labels = device_labels(snapshot.node, hardware)
    actions: list[CardAction] = []
    approval = device.metadata.annotations.get(Annotation.ASSIGNMENT) if device is not None else None
    carried = carry_over(name, device, origin) if origin is not None else None
    beforehand = approval_for(snapshot, card) if origin is None else None
    if beforehand is not None:
        carried = followed(beforehand, name, device, replaced=replaced)
        if device is not None and agrees(beforehand, device):
            approval = None  # it is this card's own, whatever was here before
    if carried is not None and device is not None:
        actions.append(carried)
    elif replaced and device is not None and approval is not None and origin is None:
        actions.append(DropApproval(device))
    if device is None or not matches_labels(labels, device.metadata.labels):
        actions.append(WriteDevice(name, DeviceSpec(node_name=snapshot.node, pci_address=card.pci.address), labels))
    if carried is not None and device is None:
        actions.append(carried)
    if hardware != known:
        actions.append(WriteHardware(name, hardware, _event(snapshot, known, card, approval, origin)))
    if beforehand is not None:
        actions.append(settled(beforehand, device, carried))
    guarded = replaced or (device is not None and carried is not None)
    return CardWork(actions=tuple(actions), observed=device if guarded else None)


def _event(
    snapshot: Snapshot, known: Hardware | None, card: Hardware, approval: str | None, origin: GPUDevice | None
) -> events.EventRecord | None:
    if origin is not None:
        return events.moved(card, origin, origin.metadata.annotations.get(Annotation.ASSIGNMENT))
    if known is None:
        first = not any(device.status.hardware for device in snapshot.known.values())
        return events.detected(card, snapshot.node, first=first)
    return events.replaced(known, card, approval) if is_replaced(known, card) else None


def _hardware(device: GPUDevice | None, card: Hardware) -> Hardware:
    return merged_hardware(device.status.hardware if device is not None else None, card)
