"""Which card is at an address: the one that is known there, another one, or one that has moved from elsewhere.

The UUID identifies a card, but only a working driver can read it. While it cannot be read, the ids on the PCI bus are
compared: another model is surely another card, the same model is taken for the same card until a UUID differs.

A new card in the machine, or other firmware settings, can give every card another address. What a person has set on a
GPUDevice (the approval, the hold, the label ignore) follows the card to its new address.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.inventory.plan import CarryOver

_CARRIED: Final = (
    Annotation.ASSIGNMENT.value,
    Annotation.APPROVED_BY.value,
    Annotation.REASON.value,
    Annotation.HOLD.value,
)


def is_replaced(known: Hardware | None, reported: Hardware) -> bool:
    """Whether `reported` proves that another card is at the address of the `known` one."""
    if known is None:
        return False
    if known.uuid is not None and reported.uuid is not None:
        return known.uuid != reported.uuid
    return (known.pci.vendor, known.pci.device) != (reported.pci.vendor, reported.pci.device)


def merged_hardware(known: Hardware | None, reported: Hardware) -> Hardware:
    """What is known of a card after another report.

    A card reported without its driver keeps what the driver had told: forgetting the UUID would hide a later
    replacement, and forgetting the memory would take the card out of pools that select by it.
    """
    if is_replaced(known, reported) or known is None or known.uuid is None or reported.uuid is not None:
        return reported
    return msgspec.structs.replace(known, pci=reported.pci)


def origins(known: Mapping[str, GPUDevice], reported: Mapping[str, Hardware]) -> dict[str, GPUDevice]:
    """For each moved card, by its present address: the GPUDevice at its old address.

    Cards that traded places are left out. Writing one of them takes the other's annotations away from the object that
    still holds them, and a crash then would lose them. Such cards count as replaced, and a person approves them anew.
    """
    places = {uuid: device for device in known.values() if (uuid := uuid_of(device)) is not None}
    found = {}
    for address, card in reported.items():
        origin = places.get(card.uuid) if card.uuid is not None else None
        if origin is not None and origin.spec.pci_address != address and uuid_of(known.get(address)) != card.uuid:
            found[address] = origin
    return {address: origin for address, origin in found.items() if not _in_a_ring(address, found)}


def carry_over(name: str, held: GPUDevice | None, origin: GPUDevice) -> CarryOver | None:
    """The annotations and labels to write so that the moved card has what was set at its old address; None if it has
    them."""
    here = held.metadata.annotations if held is not None else {}
    there = origin.metadata.annotations
    annotations = {key: there.get(key) for key in _CARRIED if here.get(key) != there.get(key)}
    ignored = origin.metadata.labels.get(Label.IGNORE)
    has = held.metadata.labels.get(Label.IGNORE) if held is not None else None
    labels = {Label.IGNORE.value: ignored} if ignored is not None and ignored != has else {}
    return CarryOver(name, annotations, labels) if annotations or labels else None


def uuid_of(device: GPUDevice | None) -> str | None:
    """The UUID that the card was last reported with."""
    hardware = device.status.hardware if device is not None else None
    return hardware.uuid if hardware is not None else None


def _in_a_ring(start: str, found: Mapping[str, GPUDevice]) -> bool:
    """Whether following the old addresses from `start` leads back to an address that was passed."""
    passed = set()
    address: str | None = start
    while address is not None and address not in passed:
        passed.add(address)
        origin = found.get(address)
        address = origin.spec.pci_address if origin is not None else None
    return address is not None
