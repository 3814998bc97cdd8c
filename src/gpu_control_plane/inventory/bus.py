"""The PCI bus against the driver: which cards one of them shows and the other does not.

The agent reads the bus itself and publishes both, card by card, so this needs nobody else. An agent that may not read
it knows only what its driver knows: then discovery's word on addresses helps, and else the number of cards has to do.
Node Feature Discovery knows models and numbers, no addresses: a second opinion.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from gpu_control_plane.api import GPUDevice, inventory_id
from gpu_control_plane.api.gpudevice import PCI
from gpu_control_plane.inventory.nfd import NVIDIA
from gpu_control_plane.inventory.report import Report, Unreadable
from gpu_control_plane.inventory.verdicts import Missing


class Witnesses(msgspec.Struct, frozen=True, kw_only=True):
    """What others than the agent say about the PCI bus of a node; None where they say nothing."""

    places: tuple[PCI, ...] | None = None
    """Discovery of our own: cards with addresses."""
    counts: Mapping[str, int] | None = None
    """Node Feature Discovery: cards by model, such as `10de:2335`."""
    awaited: bool = False
    """Whether Node Feature Discovery is at work, and has only not spoken of this node, or no longer does."""

    @property
    def cards(self) -> int | None:
        if self.places is not None:
            return len(self.places)
        return sum(self.counts.values()) if self.counts is not None else None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How a report compares with the bus."""

    missing: tuple[Missing, ...] = ()
    """Cards that can be named; there may be more."""
    short: int = 0
    """How many cards are missing."""
    ignored: tuple[str, ...] = ()
    """Addresses of cards that the driver does not see and that are out of service anyway."""
    strays: tuple[str, ...] = ()
    """Addresses of cards that the driver shows, and the bus does not."""
    differences: tuple[str, ...] = ()
    """Where Node Feature Discovery disagrees with the agent's own look at the bus."""


def with_places(report: Report | Unreadable | None, witnesses: Witnesses) -> Report | Unreadable | None:
    """The report with discovery's word on the bus, where the agent may not read it and has seen nothing else."""
    if not isinstance(report, Report) or report.bus is not None or witnesses.places is None:
        return report
    if {card.pci.address for card in report.cards} - {place.address for place in witnesses.places}:
        return report
    facts = msgspec.structs.replace(report.facts, bus_cards=max(report.facts.bus_cards, len(witnesses.places)))
    complete = len(witnesses.places) == facts.bus_cards
    return msgspec.structs.replace(report, facts=facts, bus=witnesses.places if complete else None)


def compare(node: str, report: Report, known: Mapping[str, GPUDevice], witnesses: Witnesses) -> Comparison:
    """A card that a person has taken out of service is missed by nobody."""
    reported = {card.pci.address for card in report.cards}
    places = {card.address: card for card in _places(report, witnesses)}
    absent = report.facts.bus_cards - len(reported)
    strays: tuple[str, ...] = ()
    if report.bus is not None:
        candidates = places.keys() - reported
        absent, strays = len(candidates), tuple(sorted(reported - places.keys()))
    elif len(places) < report.facts.bus_cards:
        candidates = (places.keys() | known.keys()) - reported
    else:
        candidates = places.keys() - reported
    ignored = tuple(sorted(at for at in candidates if at in known and known[at].ignored)) if absent > 0 else ()
    short = absent - len(ignored)
    if short <= 0:
        return Comparison(ignored=ignored, strays=strays, differences=_differences(report, witnesses.counts))
    named = {at: inventory_id(node, at) for at in candidates if at in known or report.bus is not None}
    missing = (_missing(at, places.get(at), known.get(at), named.get(at)) for at in candidates if at not in ignored)
    return Comparison(missing=tuple(sorted(missing)), short=short, ignored=ignored, strays=strays)


def _places(report: Report, witnesses: Witnesses) -> tuple[PCI, ...]:
    """Where cards are on the bus, as far as somebody says."""
    return report.bus if report.bus is not None else witnesses.places or ()


def _missing(address: str, place: PCI | None, device: GPUDevice | None, name: str | None) -> Missing:
    hardware = device.status.hardware if device is not None else None
    what = hardware.product if hardware is not None else f"{place.vendor}:{place.device}" if place is not None else ""
    return Missing(address, what, name)


def _differences(report: Report, counts: Mapping[str, int] | None) -> tuple[str, ...]:
    """The models of which one counts more than the other. The agent's own count of the bus is what is compared."""
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
