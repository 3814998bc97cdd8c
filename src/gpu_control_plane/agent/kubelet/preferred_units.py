"""Which units a container should get, by their mode: GetPreferredAllocation of the device plugin API."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

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
    *,
    numa_ignored: Collection[CardID] = (),
) -> Sequence[str]:
    """The device IDs of the best `size` of the candidates, those required among them. The NUMA node plays no part for
    cards in `numa_ignored`."""
    units = tuple(candidates)
    used = Counter(unit.card for unit in in_use)
    modes = {unit.mode for unit in units}
    choose = pack if Mode.MIG in modes else spread if Mode.TIME_SLICE in modes else together
    known = [
        _candidate(unit, cards[unit.card], used[unit.card], with_numa=unit.card not in numa_ignored) for unit in units
    ]
    return choose(known, required, size)


def _candidate(unit: Unit, card: ObservedCard, used: int, *, with_numa: bool) -> Candidate:
    return Candidate(
        id=unit.id,
        card=card.address,
        numa=card.hardware.numa_node if with_numa else None,
        pci_root=card.details.pci_root,
        links=card.details.links,
        used=used,
    )
