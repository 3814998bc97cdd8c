"""The PCI bus against the driver: which cards one of them shows and the other does not.

The agent counts the bus itself. With addresses from it, or from discovery, a missing card can be named; Node Feature
Discovery knows models and numbers, no addresses.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.gpudevice import PCI
from gpu_control_plane.api.names import Label
from gpu_control_plane.inventory.nfd import NVIDIA
from gpu_control_plane.inventory.report import Report
from gpu_control_plane.inventory.verdicts import Missing


class Witnesses(msgspec.Struct, frozen=True, kw_only=True):
    """What others than the agent say about the PCI bus of a node; None where they say nothing."""

    places: tuple[PCI, ...] | None = None
    """Discovery of our own: cards with addresses."""
    counts: Mapping[str, int] | None = None
    """Node Feature Discovery: cards by model, such as `10de:2335`."""

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
    differences: tuple[str, ...] = ()
    """Where Node Feature Discovery disagrees with the agent's own look at the bus."""


def compare(report: Report, known: Mapping[str, GPUDevice], witnesses: Witnesses) -> Comparison:
    """A card that a person has taken out of service is missed by nobody."""
    reported = {card.pci.address for card in report.cards}
    places = {card.address: card for card in report.bus or witnesses.places or ()}
    candidates = (places.keys() | known.keys() if len(places) < report.facts.bus_cards else places.keys()) - reported
    ignored = tuple(sorted(at for at in candidates if at in known and is_ignored(known[at])))
    short = report.facts.bus_cards - len(reported) - len(ignored)
    if short <= 0:
        gone = report.facts.bus_cards - len(reported)
        return Comparison(ignored=ignored if gone > 0 else (), differences=_differences(report, witnesses.counts))
    missing = (_missing(at, places.get(at), known.get(at)) for at in candidates if at not in ignored)
    return Comparison(missing=tuple(sorted(missing)), short=short, ignored=ignored)


def is_ignored(device: GPUDevice) -> bool:
    return device.metadata.labels.get(Label.IGNORE) == "true"


def _missing(address: str, place: PCI | None, device: GPUDevice | None) -> Missing:
    hardware = device.status.hardware if device is not None else None
    what = hardware.product if hardware is not None else f"{place.vendor}:{place.device}" if place is not None else ""
    return Missing(address, what, device.name if device is not None else None)


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
