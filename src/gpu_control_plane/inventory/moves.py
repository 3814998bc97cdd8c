"""Cards that changed their place inside a node, known by their UUIDs.

A new card in the machine, or other settings of its firmware, can give every card another address. What a person has
said of a card goes with it: the approval, the hold, and above all that it is out of service.
"""

from collections.abc import Mapping
from typing import Final

from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.inventory.plan import CardWork, CarryOver

_ANNOTATIONS: Final = (Annotation.ASSIGNMENT.value, Annotation.HOLD.value)


def origins(known: Mapping[str, GPUDevice], reported: Mapping[str, Hardware]) -> dict[str, GPUDevice]:
    """Where each moved card comes from, by its present address.

    Cards that traded places are left out: whoever is written first takes the other's marks from where they were, and a
    crash then would have lost them. They count as exchanged, and a person approves them anew.
    """
    places = {uuid: device for device in known.values() if (uuid := _uuid(device)) is not None}
    found = {}
    for address, card in reported.items():
        origin = places.get(card.uuid) if card.uuid is not None else None
        if origin is not None and origin.spec.pci_address != address and _uuid(known.get(address)) != card.uuid:
            found[address] = origin
    return {address: origin for address, origin in found.items() if not _in_a_ring(address, found)}


def carry_over(name: str, held: GPUDevice | None, origin: GPUDevice) -> CarryOver | None:
    """What to write so that the card has at its new place what was said of it at the old one; None if it has."""
    here = held.metadata.annotations if held is not None else {}
    there = origin.metadata.annotations
    annotations = {key: there.get(key) for key in _ANNOTATIONS if here.get(key) != there.get(key)}
    ignored = origin.metadata.labels.get(Label.IGNORE)
    has = held.metadata.labels.get(Label.IGNORE) if held is not None else None
    labels = {Label.IGNORE.value: ignored} if ignored is not None and ignored != has else {}
    return CarryOver(name, annotations, labels) if annotations or labels else None


def in_order(works: Mapping[str, CardWork], origins: Mapping[str, GPUDevice]) -> tuple[CardWork, ...]:
    """Works by address, each of which empties a place only after what was said there has been carried on."""
    onward = {origin.spec.pci_address: address for address, origin in origins.items()}
    chained: dict[str, CardWork] = {}
    first = [address for address in works if address not in onward]
    for start in first:
        line = [start]
        while (origin := origins.get(line[-1])) is not None and origin.spec.pci_address in works:
            line.append(origin.spec.pci_address)
        steps = [works[address] for address in line if works[address].actions]
        if steps:
            chained[start] = _linked(steps)
    return tuple(chained.values())


def _linked(steps: list[CardWork]) -> CardWork:
    *earlier, last = steps
    for step in reversed(earlier):
        last = CardWork(actions=step.actions, observed=step.observed, then=last)
    return last


def _in_a_ring(start: str, found: Mapping[str, GPUDevice]) -> bool:
    seen = set()
    address: str | None = start
    while address is not None and address not in seen:
        seen.add(address)
        origin = found.get(address)
        address = origin.spec.pci_address if origin is not None else None
    return address is not None


def _uuid(device: GPUDevice | None) -> str | None:
    hardware = device.status.hardware if device is not None else None
    return hardware.uuid if hardware is not None else None
