"""The hardware of the node at one moment. Everything above decides on a picture, never on the hardware itself."""

from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import (
    Backend,
    CardLost,
    Details,
    Instance,
    NotSupported,
    Readings,
    Signals,
)
from gpu_control_plane.agent.units import CardID
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.identity import inventory_id
from gpu_control_plane.api.nodefeature import NodeFacts

_LOST: Final = Signals(lost=True)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One card."""

    id: CardID
    hardware: Hardware
    details: Details
    signals: Signals = Signals()
    readings: Readings = Readings()
    instances: tuple[Instance, ...] = ()

    @property
    def address(self) -> str:
        return self.hardware.pci.address

    @property
    def is_cut(self) -> bool:
        """Whether the card is in MIG mode, in which nobody can have it whole."""
        return self.hardware.mig is not None and self.hardware.mig.enabled


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the backend shows."""

    known_facts: NodeFacts
    seen: dict[CardID, Seen] = {}

    def facts(self) -> NodeFacts:
        return self.known_facts

    def cards(self) -> tuple[Hardware, ...]:
        return tuple(card.hardware for card in self.seen.values())

    def by_uuid(self) -> dict[str, Seen]:
        return {card.hardware.uuid: card for card in self.seen.values() if card.hardware.uuid}


def look(node: str, backend: Backend) -> Picture:
    """A full probe of every card. Blocks."""
    cards = (_card(node, backend, hardware) for hardware in backend.cards())
    return Picture(known_facts=backend.facts(), seen={card.id: card for card in cards})


def _card(node: str, backend: Backend, hardware: Hardware) -> Seen:
    """One card. A card that is lost in the middle of its probe is just that; its driver may be fine."""
    address = hardware.pci.address
    card = Seen(id=inventory_id(node, address), hardware=hardware, details=backend.details(address), signals=_LOST)
    try:
        return msgspec.structs.replace(
            card,
            signals=backend.signals(address),
            readings=backend.readings(address),
            instances=_instances(backend, address),
        )
    except CardLost:
        return card


def _instances(backend: Backend, address: str) -> tuple[Instance, ...]:
    try:
        return backend.instances(address)
    except NotSupported:
        return ()
