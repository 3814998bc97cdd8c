"""Answers the kubelet's Allocate: the last check before a container gets a device, and what was allocated just now."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import Backend, BackendError, Process
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
from gpu_control_plane.agent.mig.units import slot_of
from gpu_control_plane.agent.node.hardware_watch import DriverReleased, HardwareWatch
from gpu_control_plane.agent.step import Allocatable, blocking_hold, recorded_holds
from gpu_control_plane.agent.units import CardID, ContainerDevices, PodDevices, ResourceName, Unit, clash
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpunodestate import Injection
from gpu_control_plane.rules.mig_layout import Slot

_DRIVER_SECONDS: Final = 8.0
"""How long the driver may take to answer, less than the kubelet's call may: after that it counts as hung."""
_HOLDER_SECONDS: Final = 5.0
"""For how long Allocate waits for the processes of the last holder to end before it refuses."""
_HOLDER_CHECK_SECONDS: Final = 0.1
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
    A unit that a pod still uses is given to no other: `living` tells which pods, by UID, have processes, `pod_of` to
    which other pod a process belongs; `on_obstacle` is called when such a pod is in the way. `may_allocate` is asked
    first: an agent that another one has replaced no longer learns who holds what. `runtime_variable` tells the vendor's
    own container runtime what to inject.
    """

    def __init__(
        self,
        watch: HardwareWatch,
        injection: Injection,
        *,
        runtime_variable: Callable[[], str | None] = lambda: None,
        on_allocated: Callable[[], None] = lambda: None,
        on_obstacle: Callable[[], None] = lambda: None,
        may_allocate: Callable[[], bool] = lambda: True,
        living: Callable[[Collection[str]], Set[str]] = lambda _uids: frozenset(),
        pod_of: Callable[[int], str | None] = lambda _pid: None,
        checkpoint: Callable[[], tuple[PodDevices, ...] | None] = lambda: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = watch
        self._injection = injection
        self._runtime_variable = runtime_variable
        self._on_allocated = on_allocated
        self._on_obstacle = on_obstacle
        self._may_allocate = may_allocate
        self._living = living
        self._pod_of = pod_of
        self._checkpoint = checkpoint
        self._recorded: frozenset[PodDevices] = frozenset()
        self._planned: frozenset[PodDevices] = frozenset()
        """Those of the recorded ones that the next plan takes into account."""
        self._sleep = sleep
        self._monotonic = monotonic
        self._calls: Counter[Unit] = Counter()
        self._unlisted: dict[Unit, float] = {}
        self._set = AllocatableSet()

    def use(
        self, allocatable: Allocatable, cards: Mapping[CardID, ObservedCard], described: InjectableDevices | None
    ) -> None:
        """Allocate from these units from now on. Without a description the injection stays what it was."""
        self._recorded -= self._planned
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

    def recorded(self) -> frozenset[PodDevices]:
        """What the kubelet's checkpoint recorded at the calls since the last plan: pods that the kubelet has forgotten
        leave the checkpoint with the next allocation."""
        self._planned = self._recorded
        return self._recorded

    async def allocate(self, resource: ResourceName, ids: tuple[str, ...]) -> ContainerAllocation:
        if not self._may_allocate():
            raise AllocationRefused("Another agent serves this node now, and knows better what is free.")
        units = [self._allocatable(resource, unit_id) for unit_id in ids]
        self._calls.update(units)
        try:
            for address in dict.fromkeys(self._set.cards[unit.card].address for unit in units):
                await self._check(address)
            await self._wait_until_unused(units)
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
        ignored = self._set.allocatable.numa_ignored
        return preferred_units(candidates, self._set.cards, in_use, required, size, numa_ignored=ignored)

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
            await self._watch.call_within(_DRIVER_SECONDS, _device_files, address)
        except (BackendError, DriverReleased) as error:
            raise AllocationRefused(f"The card at {address} cannot be handed out: {error}") from error

    async def _wait_until_unused(self, units: Sequence[Unit]) -> None:
        """Wait for pods that the kubelet has forgotten and that still run: most end at once. The others keep theirs."""
        deadline = self._monotonic() + _HOLDER_SECONDS
        obstacle = await self._obstacle(units)
        if obstacle is not None:
            self._on_obstacle()
        while obstacle is not None:
            if self._monotonic() >= deadline:
                raise AllocationRefused(obstacle)
            await self._sleep(_HOLDER_CHECK_SECONDS)
            obstacle = await self._obstacle(units)

    async def _obstacle(self, units: Sequence[Unit]) -> str | None:
        """Who still uses one of these units, as a sentence."""
        recorded = await asyncio.to_thread(self._checkpoint)
        self._recorded |= frozenset(recorded or ())
        known = self._set.allocatable.holds | recorded_holds(self._recorded, self._set.cards.values())
        holds = [hold for hold in known if any(clash(hold.unit, unit) for unit in units)]
        if holds:
            living = await asyncio.to_thread(self._living, frozenset(hold.pod_uid for hold in holds))
            for unit in units:
                if hold := blocking_hold(unit, holds, living):
                    return f"{unit.id} is still used by {hold.pod}, of which processes run on after its deletion."
        for unit in units:
            if unit.mode is not Mode.TIME_SLICE and (pid := await self._foreign_process(unit)) is not None:
                return f"{unit.id} is still used by process {pid}, which belongs to another pod."
        return None

    async def _foreign_process(self, unit: Unit) -> int | None:
        """A process of a pod on a card or instance that is to be given to another. Tools of the host do no harm."""
        card, slot = self._set.cards[unit.card], slot_of(unit)
        instance = next((each.uuid for each in card.instances if Slot.of(each) == slot), None) if slot else None
        try:
            processes = await self._watch.call_within(_DRIVER_SECONDS, _processes, card.address)
        except (BackendError, DriverReleased) as error:
            raise AllocationRefused(f"The card at {card.address} cannot be handed out: {error}") from error
        on_unit = (each.pid for each in processes if slot is None or each.instance == instance)
        return next((pid for pid in on_unit if self._pod_of(pid) is not None), None)

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


def _processes(backend: Backend, address: str) -> tuple[Process, ...]:
    return backend.processes(address)


def _device_files(backend: Backend, address: str) -> None:
    backend.device_files(address)
