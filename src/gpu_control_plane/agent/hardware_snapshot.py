"""The hardware of a node as one probe found it. Decisions are made on such a snapshot, never on the hardware itself."""

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


class ObservedCard(msgspec.Struct, frozen=True, kw_only=True):
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
    def mig_enabled(self) -> bool:
        """Whether the card is in MIG mode, in which no pod can have it whole."""
        return self.hardware.mig is not None and self.hardware.mig.enabled


class HardwareSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What one probe of a backend found."""

    node_facts: NodeFacts
    observed: dict[CardID, ObservedCard] = {}
    probe: int = 0
    """Number of the probe. A card's health is judged once for each probe."""
    cleared: frozenset[CardID] = frozenset()
    """Cards whose error reports were cleared just before this probe, since a person says that they are repaired."""

    def facts(self) -> NodeFacts:
        return self.node_facts

    def cards(self) -> tuple[Hardware, ...]:
        return tuple(card.hardware for card in self.observed.values())

    def by_uuid(self) -> dict[str, ObservedCard]:
        return {card.hardware.uuid: card for card in self.observed.values() if card.hardware.uuid}


def probe_hardware(
    node: str, backend: Backend, *, probe: int = 0, cleared: frozenset[CardID] = frozenset()
) -> HardwareSnapshot:
    """Probe every card. Blocks."""
    cards = (_observe(node, backend, hardware) for hardware in backend.cards())
    return HardwareSnapshot(
        node_facts=backend.facts(), observed={card.id: card for card in cards}, probe=probe, cleared=cleared
    )


def _observe(node: str, backend: Backend, hardware: Hardware) -> ObservedCard:
    """One card. A card that is lost in the middle of its probe is a lost card, not an error of its driver."""
    address = hardware.pci.address
    card = ObservedCard(
        id=inventory_id(node, address), hardware=hardware, details=backend.details(address), signals=_LOST
    )
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
