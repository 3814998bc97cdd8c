"""Events about cards and their nodes: the sentences, and which of them are written."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.gpuapproval import GPUApproval
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.names import Annotation, EventReason
from gpu_control_plane.kube import Condition, EventRecorder
from gpu_control_plane.kube.conditions import TRUE
from gpu_control_plane.kube.sentences import counted, counted_are


class EventRecord(msgspec.Struct, frozen=True):
    """An Event to be written once the action it belongs to has been carried out."""

    reason: str
    note: str
    warning: bool = False
    emit: bool = True
    """Whether an Event is written. If not, the change is only counted: another Event says the same."""


def detected(card: Hardware, node: str, *, first: bool = False) -> EventRecord:
    """A new card. The `first` cards of a node have one Event together, on the node's object: a rack that joins must
    not become a storm of Events."""
    note = f"{card.product} found at {card.pci.address} of {node}."
    return EventRecord(EventReason.DEVICE_DETECTED, note, emit=not first)


def first_cards(products: Iterable[str], node: str) -> EventRecord:
    """All cards that a node came with."""
    found = ", ".join(f"{count} x {product}" for product, count in sorted(Counter(products).items()))
    return EventRecord(EventReason.DEVICE_DETECTED, f"Cards found on {node}: {found}.")


def replaced(known: Hardware, card: Hardware, approval: str | None) -> EventRecord:
    dropped = f" Its approval for the pool {approval} was dropped: approve the new card." if approval else ""
    note = f"{_name(known)} at {card.pci.address} was exchanged for {_name(card)}.{dropped}"
    return EventRecord(EventReason.DEVICE_REPLACED, note, warning=True)


def approval_overruled(approval: GPUApproval, device: GPUDevice) -> EventRecord:
    """A GPUApproval that came too late: something else had been decided about the card."""
    pool = device.metadata.annotations.get(Annotation.ASSIGNMENT)
    now = f"approved for the pool {pool}" if pool else "held or out of service"
    meant = f"for the pool {approval.spec.pool}" if approval.spec.pool else "that keeps it out of pools"
    note = f"The card is {now} already: the GPUApproval {approval.name} {meant} was dropped."
    return EventRecord(EventReason.APPROVAL_IGNORED, note, warning=True)


def moved(card: Hardware, origin: GPUDevice, approval: str | None) -> EventRecord:
    kept = f" It stays approved for the pool {approval}." if approval else ""
    note = f"{_name(card)} has moved from {origin.spec.pci_address} to {card.pci.address}.{kept}"
    return EventRecord(EventReason.DEVICE_MOVED, note)


def removed(device: GPUDevice, approval: str | None, now_in: str | None) -> EventRecord:
    product = device.status.hardware.product if device.status.hardware else "The card"
    pool = f" It was approved for the pool {approval}." if approval else ""
    where = f" The node {now_in} has it now: approve it there." if now_in else ""
    return EventRecord(
        EventReason.DEVICE_REMOVED, f"{product} at {device.spec.pci_address} is no longer on the PCI bus.{pool}{where}"
    )


def forgotten(node: str, cards: int, now_in: str | None = None) -> EventRecord:
    if now_in:
        why = f"The Node {node} is gone, and {now_in} has its {counted(cards, 'card')}: approve there."
        return EventRecord(EventReason.NODE_FORGOTTEN, why)
    why = f"The Node {node} has not come back. {counted_are(cards, 'card')} forgotten."
    return EventRecord(EventReason.NODE_FORGOTTEN, why)


def inventory_changed(old: Condition | None, new: Condition) -> EventRecord | None:
    """An incomplete inventory has an Event whenever its reason or message changes, a recovery has one, and a node that
    is complete from the start has none: its cards have theirs."""
    if old is not None and (old.status, old.reason, old.message) == (new.status, new.reason, new.message):
        return None
    if new.status != TRUE:
        return EventRecord(new.reason, new.message, warning=True)
    return EventRecord(new.reason, new.message) if old is not None and old.status != TRUE else None


def record(recorder: EventRecorder, about: GPUDevice | GPUNodeState, event: EventRecord | None) -> None:
    if event is None or not event.emit:
        return
    write = recorder.warning if event.warning else recorder.normal
    write(about, event.reason, event.note)


def _name(card: Hardware) -> str:
    return f"{card.product} ({card.uuid})" if card.uuid else card.product
