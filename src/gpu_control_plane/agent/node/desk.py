"""Hands units out: the last check before a container gets a card, and the memory of what was just handed out."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import Backend, BackendError
from gpu_control_plane.agent.cdi.describe import Description, Grantable
from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.agent.cdi.grants import by_cdi, by_kubelet, by_nvidia_runtime, device_name
from gpu_control_plane.agent.kubelet.interface import Grant, Refused
from gpu_control_plane.agent.kubelet.preference import Candidate, pack, spread, together
from gpu_control_plane.agent.node.picture import Seen
from gpu_control_plane.agent.node.watch import HardwareWatch, Quiesced
from gpu_control_plane.agent.units import CardID, ResourceName, Unit
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpunodestate import Injection

_SETTLING: Final = 10.0
"""Seconds after which a unit that was handed out and is in nobody's books counts as unused: its pod has failed."""


class Stock(msgspec.Struct, frozen=True, kw_only=True):
    """What the desk may hand out, as last decided."""

    available: frozenset[Unit] = frozenset()
    held: frozenset[Unit] = frozenset()
    cards: Mapping[CardID, Seen] = {}
    grantables: Mapping[str, Grantable] = {}
    """By the name of the device."""
    common: Edits = Edits()


class Desk:
    """The allocator behind the device plugin.

    The kubelet writes a unit into its books only when `allocate` has returned. Until then, and until it was seen
    there, the unit counts as held: otherwise a slow call could end after its card had moved on.
    """

    def __init__(
        self,
        watch: HardwareWatch,
        injection: Injection,
        *,
        on_grant: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = watch
        self._injection = injection
        self._on_grant = on_grant
        self._monotonic = monotonic
        self._calls: Counter[Unit] = Counter()
        self._handed_out: dict[Unit, float] = {}
        self.stock = Stock()

    def pending(self, seen: Iterable[Unit]) -> set[Unit]:
        """What was handed out and is not in the books yet; `seen` is what is."""
        settled = set(seen)
        limit = self._monotonic() - _SETTLING
        self._handed_out = {unit: at for unit, at in self._handed_out.items() if unit not in settled and at > limit}
        return self._calls.keys() | self._handed_out.keys()

    async def allocate(self, resource: ResourceName, ids: tuple[str, ...]) -> Grant:
        units = [self._on_offer(resource, unit_id) for unit_id in ids]
        self._calls.update(units)
        try:
            for address in dict.fromkeys(self.stock.cards[unit.card].address for unit in units):
                await self._check(address)
            grant = self._grant(units)
        finally:
            self._calls.subtract(units)
            self._calls = +self._calls
        self._handed_out |= dict.fromkeys(units, self._monotonic())
        self._on_grant()
        return grant

    def prefer(
        self, resource: ResourceName, available: Sequence[str], required: Sequence[str], size: int
    ) -> Sequence[str]:
        units = {unit.id: unit for unit in self.stock.available if unit.resource == resource}
        used = Counter(unit.card for unit in {*self.stock.held, *self._calls, *self._handed_out})
        candidates = [self._candidate(units[unit_id], used) for unit_id in (*available, *required) if unit_id in units]
        unique = list({candidate.id: candidate for candidate in candidates}.values())
        modes = {unit.mode for unit in units.values()}
        choose = pack if Mode.MIG in modes else spread if Mode.TIME_SLICE in modes else together
        return choose(unique, required, size)

    def _on_offer(self, resource: ResourceName, unit_id: str) -> Unit:
        for unit in self.stock.available:
            if unit.id == unit_id and unit.resource == resource:
                return unit
        raise Refused(f"{unit_id} is not on offer as {resource}: it is faulty, or on its way to another pool.")

    async def _check(self, address: str) -> None:
        """Ask for the card's device files once more: one that the driver has dropped since the last look has none."""
        try:
            await self._watch.call(_device_files, address)
        except (BackendError, Quiesced) as error:
            raise Refused(f"The card at {address} cannot be handed out: {error}") from error

    def _grant(self, units: Sequence[Unit]) -> Grant:
        names = [device_name(unit.id) for unit in units]
        missing = [name for name in names if name not in self.stock.grantables]
        if missing:
            raise Refused(f"{', '.join(missing)}: no device file is there to be given to a container.")
        chosen = [self.stock.grantables[name] for name in dict.fromkeys(names)]
        match self._injection:
            case Injection.CDI:
                return by_cdi(names)
            case Injection.RUNTIME:
                return by_nvidia_runtime(chosen)
            case _:
                return by_kubelet(chosen, self.stock.common)

    def _candidate(self, unit: Unit, used: Mapping[CardID, int]) -> Candidate:
        seen = self.stock.cards[unit.card]
        return Candidate(
            id=unit.id,
            card=seen.address,
            numa=seen.hardware.numa_node,
            pci_root=seen.details.pci_root,
            links=seen.details.links,
            used=used.get(unit.card, 0),
        )


def grantables(description: Description) -> dict[str, Grantable]:
    return {grantable.device.name: grantable for grantable in description.grantables}


def _device_files(backend: Backend, address: str) -> None:
    backend.device_files(address)
