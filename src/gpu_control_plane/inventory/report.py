"""Reads the report of a node's agent, its NodeFeature, once; everything behind it works on typed, checked values.

A report is used as a whole or not at all: where a part of it makes no sense, the rest proves nothing either.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from gpu_control_plane.api.gpudevice import PCI, Hardware
from gpu_control_plane.api.gpunodestate import MAX_CARDS
from gpu_control_plane.api.identity import canonical_pci_address
from gpu_control_plane.api.nodefeature import (
    BUS,
    NODE,
    NODE_LABEL,
    NodeFacts,
    NodeFeature,
    read_bus,
    read_cards,
    read_facts,
)


class Report(msgspec.Struct, frozen=True):
    """The cards of a node in the order of their addresses, no address twice, and the facts about the node."""

    cards: tuple[Hardware, ...]
    facts: NodeFacts
    bus: tuple[PCI, ...] | None = None
    """The cards that the agent sees on the PCI bus; None where it knows only their number."""

    @property
    def complete(self) -> bool:
        """Whether every card that the PCI bus shows is among the reported ones."""
        if self.bus is None:
            return len(self.cards) == self.facts.bus_cards
        return {card.address for card in self.bus} <= {card.pci.address for card in self.cards}


class Unreadable(msgspec.Struct, frozen=True):
    """A report that makes no sense, and why."""

    why: str


def read_report(node: str, feature: NodeFeature) -> Report | Unreadable:
    """The report in a NodeFeature of `node`."""
    try:
        _is_about(node, feature)
        cards = tuple(sorted(map(_with_canonical_address, read_cards(feature)), key=lambda card: card.pci.address))
        facts = read_facts(feature)
        return _plausible(Report(cards, facts, _ordered(facts.bus) if facts.bus is not None else None))
    except ValueError as error:
        return Unreadable(str(error))


def read_discovered_bus(feature: NodeFeature | None) -> tuple[PCI, ...] | None:
    """The cards in a NodeFeature of our discovery; None where it names none, `ValueError` where they make no sense."""
    if feature is None or BUS not in feature.spec.features.instances:
        return None
    return _ordered(read_bus(feature))


def _is_about(node: str, feature: NodeFeature) -> None:
    attributes = feature.spec.features.attributes.get(NODE)
    names = {feature.metadata.labels.get(NODE_LABEL, node)}
    if attributes is not None:
        names.add(attributes.elements.get("node", node))
    if others := sorted(names - {node}):
        raise ValueError(f"it is about the node {others[0]}, not about {node}")


def _ordered(bus: Iterable[PCI]) -> tuple[PCI, ...]:
    return tuple(sorted(map(_with_canonical, bus), key=lambda card: card.address))


def _with_canonical_address(card: Hardware) -> Hardware:
    pci = _with_canonical(card.pci)
    return card if pci is card.pci else msgspec.structs.replace(card, pci=pci)


def _with_canonical(card: PCI) -> PCI:
    address = canonical_pci_address(card.address)
    return card if address == card.address else msgspec.structs.replace(card, address=address)


def _plausible(report: Report) -> Report:
    addresses = [card.pci.address for card in report.cards]
    if twice := sorted({address for address in addresses if addresses.count(address) > 1}):
        raise ValueError(f"two cards are said to be at {twice[0]}")
    if len(addresses) > report.facts.bus_cards:
        raise ValueError(f"{len(addresses)} cards are reported, but the PCI bus shows {report.facts.bus_cards}")
    on_bus = [card.address for card in report.bus or ()]
    if len(set(on_bus)) < len(on_bus) or len(on_bus) > report.facts.bus_cards:
        raise ValueError(f"the PCI bus is said to show {report.facts.bus_cards} cards, at {len(on_bus)} places")
    if len(addresses) > MAX_CARDS:
        raise ValueError(f"{len(addresses)} cards are reported, and a node may have {MAX_CARDS}")
    uuids = Counter(card.uuid for card in report.cards if card.uuid)
    if repeated := sorted(uuid for uuid, count in uuids.items() if count > 1):
        raise ValueError(f"two cards are said to be {repeated[0]}")
    return report
