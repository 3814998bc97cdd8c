"""Which units a container should get, by their mode: GetPreferredAllocation of the device plugin API."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpu_control_plane.agent.hardware_snapshot import ObservedCard
from gpu_control_plane.agent.kubelet.preference import Candidate, pack, spread, together
from gpu_control_plane.agent.units import CardID, Unit
from gpu_control_plane.api.allocation import Mode


def preferred_units(
    candidates: Iterable[Unit],
    cards: Mapping[CardID, ObservedCard],
    in_use: Iterable[Unit],
    required: Sequence[str],
    size: int,
) -> Sequence[str]:
    """The device IDs of the best `size` of the candidates, those required among them."""
    units = tuple(candidates)
    used = Counter(unit.card for unit in in_use)
    modes = {unit.mode for unit in units}
    choose = pack if Mode.MIG in modes else spread if Mode.TIME_SLICE in modes else together
    return choose([_candidate(unit, cards[unit.card], used[unit.card]) for unit in units], required, size)


def _candidate(unit: Unit, card: ObservedCard, used: int) -> Candidate:
    return Candidate(
        id=unit.id,
        card=card.address,
        numa=card.hardware.numa_node,
        pci_root=card.details.pci_root,
        links=card.details.links,
        used=used,
    )
