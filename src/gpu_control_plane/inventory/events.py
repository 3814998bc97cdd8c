"""What people are told about cards and their nodes: the sentences, and where they appear."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.names import EventReason
from gpu_control_plane.kube import Condition, EventRecorder
from gpu_control_plane.kube.conditions import TRUE


class Tell(msgspec.Struct, frozen=True):
    """An Event to be written once the action it belongs to has been carried out."""

    reason: str
    note: str
    warning: bool = False
    aloud: bool = True
    """Whether it is an Event at all, or only counted: somebody else tells the same."""


def detected(card: Hardware, node: str, *, first: bool = False) -> Tell:
    """A new card. The `first` cards of a node are told of together, by the node: a rack that joins is no storm."""
    note = f"{card.product} found at {card.pci.address} of {node}."
    return Tell(EventReason.DEVICE_DETECTED, note, aloud=not first)


def first_cards(products: Iterable[str], node: str) -> Tell:
    """All cards that a node came with."""
    found = ", ".join(f"{count} x {product}" for product, count in sorted(Counter(products).items()))
    return Tell(EventReason.DEVICE_DETECTED, f"Cards found on {node}: {found}.")


def replaced(known: Hardware, card: Hardware, approval: str | None) -> Tell:
    dropped = f" Its approval for the pool {approval} was dropped: approve the new card." if approval else ""
    note = f"{_name(known)} at {card.pci.address} was exchanged for {_name(card)}.{dropped}"
    return Tell(EventReason.DEVICE_REPLACED, note, warning=True)


def moved(card: Hardware, origin: GPUDevice, approval: str | None) -> Tell:
    kept = f" It stays approved for the pool {approval}." if approval else ""
    note = f"{_name(card)} has moved from {origin.spec.pci_address} to {card.pci.address}.{kept}"
    return Tell(EventReason.DEVICE_MOVED, note)


def removed(device: GPUDevice, approval: str | None, now_in: str | None) -> Tell:
    product = device.status.hardware.product if device.status.hardware else "The card"
    pool = f" It was approved for the pool {approval}." if approval else ""
    where = f" The node {now_in} has it now: approve it there." if now_in else ""
    return Tell(
        EventReason.DEVICE_REMOVED, f"{product} at {device.spec.pci_address} is no longer on the PCI bus.{pool}{where}"
    )


def forgotten(node: str, cards: int, now_in: str | None = None) -> Tell:
    if now_in:
        why = f"The Node {node} is gone, and {now_in} has its {cards} cards: approve them there."
        return Tell(EventReason.NODE_FORGOTTEN, why)
    return Tell(EventReason.NODE_FORGOTTEN, f"The Node {node} has not come back. Its {cards} cards are forgotten.")


def inventory_changed(old: Condition | None, new: Condition) -> Tell | None:
    """Trouble is told whenever it changes, recovery once, and a good beginning not at all: its cards are told of."""
    if old is not None and (old.status, old.reason, old.message) == (new.status, new.reason, new.message):
        return None
    if new.status != TRUE:
        return Tell(new.reason, new.message, warning=True)
    return Tell(new.reason, new.message) if old is not None and old.status != TRUE else None


def tell(recorder: EventRecorder, about: GPUDevice | GPUNodeState, what: Tell | None) -> None:
    if what is None or not what.aloud:
        return
    say = recorder.warning if what.warning else recorder.normal
    say(about, what.reason, what.note)


def _name(card: Hardware) -> str:
    return f"{card.product} ({card.uuid})" if card.uuid else card.product
