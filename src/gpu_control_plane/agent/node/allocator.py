"""Answers the kubelet's Allocate: the last check before a container gets a device, and what was allocated just now."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import Backend, BackendError
from gpu_control_plane.agent.cdi.container_allocation import (
    cdi_allocation,
    device_name,
    kubelet_allocation,
    runtime_allocation,
)
from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.agent.cdi.injectable import InjectableDevice, InjectableDevices
from gpu_control_plane.agent.hardware_snapshot import ObservedCard
from gpu_control_plane.agent.kubelet.interface import AllocationRefused, ContainerAllocation
from gpu_control_plane.agent.kubelet.preferred_units import preferred_units
from gpu_control_plane.agent.node.hardware_watch import DriverReleased, HardwareWatch
from gpu_control_plane.agent.step import Allocatable
from gpu_control_plane.agent.units import CardID, ContainerDevices, ResourceName, Unit
from gpu_control_plane.api.gpunodestate import Injection

_UNLISTED_SECONDS: Final = 10.0
"""After this time a unit that was allocated and is not in the kubelet's list counts as unused: its pod has failed."""


class AllocatableSet(msgspec.Struct, frozen=True, kw_only=True):
    """What may be allocated, as last decided, and how it is injected."""

    allocatable: Allocatable = Allocatable()
    cards: Mapping[CardID, ObservedCard] = {}
    injectable: Mapping[str, InjectableDevice] = {}
    """By CDI name."""
    common: Edits = Edits()


class Allocator:
    """The allocator behind the device plugins.

    The kubelet lists a unit as allocated only when `allocate` has returned. Until then, and until the unit was seen in
    that list, it counts as held: otherwise a slow call could end after its card had moved to another resource.
    `runtime_variable` is the variable that tells the vendor's own container runtime what to inject.
    """

    def __init__(
        self,
        watch: HardwareWatch,
        injection: Injection,
        *,
        runtime_variable: Callable[[], str | None] = lambda: None,
        on_allocated: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = watch
        self._injection = injection
        self._runtime_variable = runtime_variable
        self._on_allocated = on_allocated
        self._monotonic = monotonic
        self._calls: Counter[Unit] = Counter()
        self._unlisted: dict[Unit, float] = {}
        self._set = AllocatableSet()

    def use(
        self, allocatable: Allocatable, cards: Mapping[CardID, ObservedCard], described: InjectableDevices | None
    ) -> None:
        """Allocate from these units from now on. Without a description the injection stays what it was."""
        self._set = AllocatableSet(
            allocatable=allocatable,
            cards=cards,
            injectable={each.device.name: each for each in described.injectable} if described else {},
            common=described.common if described else self._set.common,
        )

    def in_flight(self, listed: Iterable[ContainerDevices]) -> frozenset[Unit]:
        """The units of calls under way, and those that were allocated and are not in the kubelet's list yet."""
        known = {(entry.resource, unit_id) for entry in listed for unit_id in entry.ids}
        limit = self._monotonic() - _UNLISTED_SECONDS
        self._unlisted = {
            unit: at for unit, at in self._unlisted.items() if (unit.resource, unit.id) not in known and at > limit
        }
        return frozenset(self._calls.keys() | self._unlisted.keys())

    async def allocate(self, resource: ResourceName, ids: tuple[str, ...]) -> ContainerAllocation:
        units = [self._allocatable(resource, unit_id) for unit_id in ids]
        self._calls.update(units)
        try:
            for address in dict.fromkeys(self._set.cards[unit.card].address for unit in units):
                await self._check(address)
            grant = self._grant(units)
        finally:
            self._calls.subtract(units)
            self._calls = +self._calls
        self._unlisted |= dict.fromkeys(units, self._monotonic())
        self._on_allocated()
        return grant

    def prefer(
        self, resource: ResourceName, available: Sequence[str], required: Sequence[str], size: int
    ) -> Sequence[str]:
        units = {unit.id: unit for unit in self._set.allocatable.units if unit.resource == resource}
        candidates = [units[unit_id] for unit_id in dict.fromkeys((*available, *required)) if unit_id in units]
        in_use = {*self._set.allocatable.held, *self._calls, *self._unlisted}
        return preferred_units(candidates, self._set.cards, in_use, required, size)

    def _allocatable(self, resource: ResourceName, unit_id: str) -> Unit:
        for unit in self._set.allocatable.units:
            if unit.id == unit_id and unit.resource == resource:
                return unit
        raise AllocationRefused(
            f"{unit_id} is not on offer as {resource}: it is faulty, or on its way to another pool."
        )

    async def _check(self, address: str) -> None:
        """Ask for the card's device files once more: a card that the driver has dropped since the probe has none."""
        try:
            await self._watch.call(_device_files, address)
        except (BackendError, DriverReleased) as error:
            raise AllocationRefused(f"The card at {address} cannot be handed out: {error}") from error

    def _grant(self, units: Sequence[Unit]) -> ContainerAllocation:
        names = [device_name(unit.id) for unit in units]
        injectable = self._set.injectable
        missing = [name for name in names if name not in injectable]
        if missing:
            raise AllocationRefused(f"{', '.join(missing)}: no device file is there to be given to a container.")
        chosen = [injectable[name] for name in dict.fromkeys(names)]
        match self._injection:
            case Injection.CDI:
                return cdi_allocation(names)
            case Injection.RUNTIME:
                variable = self._runtime_variable()
                if variable is None:
                    raise AllocationRefused("The vendor of these cards has no container runtime of its own.")
                return runtime_allocation(chosen, variable)
            case _:
                return kubelet_allocation(chosen, self._set.common)


def _device_files(backend: Backend, address: str) -> None:
    backend.device_files(address)
