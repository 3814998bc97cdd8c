"""Compares the PCI bus with the driver: which cards one of them shows and the other does not.

The agent reads the bus itself and publishes both lists, card by card. An agent that may not read the bus knows only
the cards of its driver. Then the addresses that our discovery publishes are used, and without those the number of
cards. Node Feature Discovery (NFD) publishes models and numbers without addresses, so it can only confirm or
contradict the agent's count.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from gpu_control_plane.api import GPUDevice, inventory_id
from gpu_control_plane.api.gpudevice import PCI
from gpu_control_plane.inventory.completeness import MissingCard
from gpu_control_plane.inventory.nfd import NVIDIA
from gpu_control_plane.inventory.report import Report, Unreadable


class BusSources(msgspec.Struct, frozen=True, kw_only=True):
    """What other programs than the agent publish about the PCI bus of a node; None where they publish nothing."""

    discovered: tuple[PCI, ...] | None = None
    """From our own discovery: cards with addresses."""
    nfd_counts: Mapping[str, int] | None = None
    """From NFD: number of cards by model, such as `10de:2335`."""
    nfd_awaited: bool = False
    """Whether NFD runs in the cluster but publishes nothing about this node, not yet or no longer."""

    @property
    def cards(self) -> int | None:
        if self.discovered is not None:
            return len(self.discovered)
        return sum(self.nfd_counts.values()) if self.nfd_counts is not None else None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How a report compares with the bus."""

    missing: tuple[MissingCard, ...] = ()
    """Cards that can be named; there may be more."""
    missing_count: int = 0
    """How many cards are missing."""
    ignored: tuple[str, ...] = ()
    """Addresses of cards that the driver does not show and that carry the label ignore, so they are not missing."""
    off_bus: tuple[str, ...] = ()
    """Addresses of cards that the driver shows and the bus does not."""
    differences: tuple[str, ...] = ()
    """Where NFD's count differs from the agent's own reading of the bus."""


def with_discovered_bus(report: Report | Unreadable | None, bus_sources: BusSources) -> Report | Unreadable | None:
    """The report with the bus as our discovery reads it, where the agent may not read it. A discovery that does not
    show every reported card is older than the report and is not used."""
    discovered = bus_sources.discovered
    if not isinstance(report, Report) or report.bus is not None or discovered is None:
        return report
    if {card.pci.address for card in report.cards} - {card.address for card in discovered}:
        return report
    facts = msgspec.structs.replace(report.facts, bus_cards=max(report.facts.bus_cards, len(discovered)))
    complete = len(discovered) == facts.bus_cards
    return msgspec.structs.replace(report, facts=facts, bus=discovered if complete else None)


def compare(node: str, report: Report, known: Mapping[str, GPUDevice], bus_sources: BusSources) -> Comparison:
    """Compare a report with the bus. A card with the label ignore is never missing."""
    reported = {card.pci.address for card in report.cards}
    on_bus = {card.address: card for card in _bus(report, bus_sources)}
    absent = report.facts.bus_cards - len(reported)
    off_bus: tuple[str, ...] = ()
    if report.bus is not None:
        candidates = on_bus.keys() - reported
        absent, off_bus = len(candidates), tuple(sorted(reported - on_bus.keys()))
    elif len(on_bus) < report.facts.bus_cards:
        candidates = (on_bus.keys() | known.keys()) - reported
    else:
        candidates = on_bus.keys() - reported
    ignored = tuple(sorted(at for at in candidates if at in known and known[at].ignored)) if absent > 0 else ()
    missing_count = absent - len(ignored)
    if missing_count <= 0:
        return Comparison(ignored=ignored, off_bus=off_bus, differences=_differences(report, bus_sources.nfd_counts))
    named = {at: inventory_id(node, at) for at in candidates if at in known or report.bus is not None}
    missing = (_missing(at, on_bus.get(at), known.get(at), named.get(at)) for at in candidates if at not in ignored)
    return Comparison(missing=tuple(sorted(missing)), missing_count=missing_count, ignored=ignored, off_bus=off_bus)


def _bus(report: Report, bus_sources: BusSources) -> tuple[PCI, ...]:
    """The cards on the bus as far as the agent, or else our discovery, publishes their addresses."""
    return report.bus if report.bus is not None else bus_sources.discovered or ()


def _missing(address: str, card: PCI | None, device: GPUDevice | None, name: str | None) -> MissingCard:
    hardware = device.status.hardware if device is not None else None
    model = hardware.product if hardware is not None else f"{card.vendor}:{card.device}" if card is not None else ""
    return MissingCard(address, model, name)


def _differences(report: Report, counts: Mapping[str, int] | None) -> tuple[str, ...]:
    """The models that NFD and the agent's own reading of the bus count differently, as parts of a sentence."""
    if counts is None:
        return ()
    bus = report.bus if report.bus is not None else tuple(card.pci for card in report.cards)
    if len(bus) < report.facts.bus_cards:
        return ()
    seen = Counter(f"{card.vendor}:{card.device}" for card in bus if card.vendor == NVIDIA)
    return tuple(
        f"it counts {counts.get(model, 0)} of {model}, the agent {seen[model]}"
        for model in sorted(seen.keys() | counts.keys())
        if counts.get(model, 0) != seen[model]
    )
