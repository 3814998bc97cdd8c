"""The simulated backend: the cards that a document describes, as a driver would report them.

A fleet makes one for every look at a node, so making one costs next to nothing. The agent of a real node keeps one,
tells it about changes of the document, and gives it a folder for device files and for what cards remember.
"""

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane import __version__
from gpu_control_plane.agent.backends.interface import (
    Backend,
    CardLost,
    Details,
    DeviceFile,
    Instance,
    Process,
    Readings,
    Recovery,
    Signals,
)
from gpu_control_plane.agent.simulated.device_files import DeviceNodes
from gpu_control_plane.agent.simulated.machine import Machine, boot_id, card_uuid
from gpu_control_plane.agent.simulated.mig import with_instance, with_mig_mode, without_instance
from gpu_control_plane.agent.simulated.models import PROFILES, VENDOR, Load, numa_node
from gpu_control_plane.agent.simulated.samples import card_samples, instance_samples
from gpu_control_plane.agent.simulated.state import CardMemory, CardState, InstanceRecord
from gpu_control_plane.agent.vendors.registry import support_of
from gpu_control_plane.api.gpudevice import PCI, Hardware
from gpu_control_plane.api.gpunodestate import (
    AgentFunctions,
    Driver,
    DriverSource,
    Injection,
    Monitoring,
    MonitoringSource,
    Toolkit,
)
from gpu_control_plane.api.nodefeature import NodeFacts

_NVIDIA: Final = "10de"
_DRIVER: Final = Driver(version="580.159.04", cuda_version="13.0", source=DriverSource.HOST)
_TOOLKIT: Final = Toolkit(injection=Injection.CDI, runtime="containerd://2.4.2")
_FLEET: Final = AgentFunctions(labels=False, checks=False, burn_in=False, exporter=True)
"""What the simulated fleet does for its nodes. The agent of a real node with simulated cards publishes its own."""
_LINKS: Final = 18
_STATE_FILE: Final = "cards.json"


class SimulatedBackend(Backend):
    """The `Backend` of one simulated node.

    `busy` and `busy_instances` are the addresses of cards and the UUIDs of MIG instances that pods use, and
    `processes` the programs on the cards, by address. `before_create` is called with the number of each attempt to
    cut an instance, and may raise what a driver would.
    """

    def __init__(
        self,
        node: str,
        machine: Machine,
        busy: Set[str] = frozenset(),
        *,
        busy_instances: Set[str] = frozenset(),
        processes: Mapping[str, Sequence[Process]] = {},
        device_root: Path | None = None,
        boot: str | None = None,
        toolkit: Toolkit | None = _TOOLKIT,
        before_create: Callable[[int], None] = lambda _attempt: None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._machine = machine
        self._places = machine.addresses
        self._profile = PROFILES[machine.profile]
        self._busy = busy
        self._busy_instances = busy_instances
        self._processes = processes
        self._boot = boot
        self._toolkit = toolkit
        self._before_create = before_create
        self._attempts = 0
        self._sleep = sleep
        self._clock = clock
        self._nodes = DeviceNodes(device_root)
        self._memory = (
            CardMemory(self._boot_id(), {}, device_root / _STATE_FILE)
            if device_root
            else CardMemory(self._boot_id(), machine.state)
        )
        self._changes = threading.Lock()
        self._changed = threading.Event()
        self._concerned: set[str] = set()

    def open(self) -> None:
        with self._changes:
            self._settle()

    @property
    def machine(self) -> Machine:
        """The document, with what the cards remember now."""
        return msgspec.structs.replace(self._machine, state=self._memory.cards)

    def close(self) -> None:
        """Nothing is held open; a wait that is under way ends."""
        self._changed.set()

    def update(self, machine: Machine) -> None:
        """Take a new version of the document; a wait ends with the cards that it changed."""
        with self._changes:
            if machine == self._machine:
                return
            before, self._machine = self._machine, machine
            self._places = machine.addresses
            self._profile = PROFILES[machine.profile]
            self._concerned |= _differing(before, machine)
            self._settle()
        self._changed.set()

    def occupy(self, busy: Set[str], busy_instances: Set[str] = frozenset()) -> None:
        """Pods use these cards and MIG instances now, and no others."""
        self._busy, self._busy_instances = busy, busy_instances

    def wait(self, seconds: float) -> frozenset[str]:
        self._changed.wait(seconds)
        with self._changes:
            self._changed.clear()
            concerned, self._concerned = frozenset(self._concerned), set()
        return concerned

    def facts(self) -> NodeFacts:
        bus = tuple(self._place(address) for address in self._present().values())
        return NodeFacts(
            bus_cards=len(bus),
            bus=bus,
            boot_id=self._boot_id(),
            agent_version=__version__,
            driver=_DRIVER,
            toolkit=self._toolkit,
            monitoring=Monitoring(source=MonitoringSource.AGENT),
            agent=_FLEET,
        )

    def cards(self) -> tuple[Hardware, ...]:
        return tuple(self._card(index, address) for index, address in self._present().items())

    def details(self, address: str) -> Details:
        index = self._index(address)
        peers = self._card(index, address).nvlink_peers
        return Details(
            index=index,
            minor=index,
            serial=f"{int(self._uuid(address)[-12:], 16):015d}",
            pci_root=f"pci{address[:7]}",
            links=dict.fromkeys(peers, _LINKS),
        )

    def signals(self, address: str) -> Signals:
        done = self._machine.of(address)
        state = self._state(address)
        xids = done.xids[len(_overlap(state.cleared, done.xids)) :]
        return Signals(
            xids=xids,
            clears=done.resets + state.clears,
            lost=done.lost or done.pulled or address not in self._places,
            uncorrected_ecc=done.ecc,
            remap_pending=done.remap_pending,
            remap_failed=done.remap_failed,
            overheated=done.overheated,
            # As current drivers do: after an error that is the card's own they ask for a reset until it is made.
            recovery=Recovery.RESET if support_of(VENDOR).health.faults(xids) else Recovery.NONE,
        )

    def clear(self, address: str) -> None:
        with self._changes:
            state, xids = self._state(address), self._machine.of(address).xids
            self._memory.put(address, msgspec.structs.replace(state, cleared=xids, clears=state.clears + 1))

    def readings(self, address: str) -> Readings:
        if not self._answers(address):
            return Readings()
        load = self._load(address)
        return Readings(
            temperature=load.temperature,
            power=load.power,
            utilisation=load.utilisation,
            memory_used=load.memory_used,
        )

    def samples(self, address: str, instance: Instance | None = None) -> Mapping[str, float]:
        if not self._answers(address):
            return {}
        if instance is None:
            return card_samples(self._profile, self._load(address), self.signals(address), self._clock())
        sizes = (
            {profile.name: profile.memory_mib for profile in self._profile.mig.profiles} if self._profile.mig else {}
        )
        return instance_samples(
            self._profile, instance, sizes.get(instance.profile, 0), busy=self._instance_in_use(address, instance)
        )

    def processes(self, address: str) -> tuple[Process, ...]:
        return tuple(self._processes.get(address, ())) if self._answers(address) else ()

    def control_files(self) -> tuple[DeviceFile, ...]:
        return self._nodes.control()

    def device_files(self, address: str) -> tuple[DeviceFile, ...]:
        """As late as the document says: between asking and answering an agent may die."""
        self._sleep(self._machine.slow_seconds)
        return self._nodes.card(self._index(address))

    def instance_files(self, address: str, instance: Instance) -> tuple[DeviceFile, ...]:
        return self._nodes.instance(self._index(address), instance)

    def instances(self, address: str) -> tuple[Instance, ...]:
        self._check_answers(address)
        return tuple(self._instance(address, record) for record in self._state(address).instances)

    def set_mig_mode(self, address: str, *, enabled: bool) -> None:
        with self._changes:
            card = self._working_card(address)
            in_use = address in self._busy or bool(self.processes(address))
            self._memory.put(address, with_mig_mode(self._state(address), card, enabled=enabled, in_use=in_use))

    def create_instance(self, address: str, profile: str, start: int) -> Instance:
        with self._changes:
            self._attempts += 1
            self._before_create(self._attempts)
            state, record = with_instance(self._state(address), self._working_card(address), profile, start)
            self._memory.put(address, state)
            self._settle()
        return self._instance(address, record)

    def destroy_instance(self, address: str, instance: Instance) -> None:
        with self._changes:
            in_use, state = self._instance_in_use(address, instance), self._state(address)
            record = next((each for each in state.instances if self._instance(address, each) == instance), None)
            card = self._working_card(address)
            self._memory.put(address, without_instance(state, card, instance.uuid, record, in_use=in_use))
            self._settle()

    def _boot_id(self) -> str:
        return self._boot or boot_id(self._node, self._machine)

    def _present(self) -> dict[int, str]:
        places = enumerate(self._places)
        return {index: address for index, address in places if not self._machine.of(address).pulled}

    def _uuid(self, address: str) -> str:
        return card_uuid(self._node, address, self._machine.of(address).swapped)

    def _state(self, address: str) -> CardState:
        return self._memory.of(address, self._uuid(address))

    def _instance(self, address: str, record: InstanceRecord) -> Instance:
        name = f"{self._uuid(address)}/{self._boot_id()}/{record.number}"
        return Instance(
            profile=record.profile,
            start=record.start,
            size=record.size,
            uuid=f"MIG-{uuid.uuid5(uuid.NAMESPACE_DNS, name)}",
            gpu_instance=record.gpu_instance,
            compute_instance=0,
        )

    def _index(self, address: str) -> int:
        for index, present in self._present().items():
            if present == address:
                return index
        raise CardLost(f"There is no card at {address}.")

    def _answers(self, address: str) -> bool:
        return not self.signals(address).lost

    def _check_answers(self, address: str) -> None:
        if not self._answers(address):
            raise CardLost(f"The card at {address} does not answer.")

    def _working_card(self, address: str) -> Hardware:
        self._check_answers(address)
        return self._card(self._index(address), address)

    def _card(self, index: int, address: str) -> Hardware:
        profile = self._profile
        peers = (other for other in self._present().values() if other != address) if profile.nvlink else ()
        identity = self._uuid(address)
        mig = profile.mig
        if mig is not None and self._memory.of(address, identity).enabled:
            mig = msgspec.structs.replace(mig, enabled=True)
        return Hardware(
            vendor=VENDOR,
            product=profile.product,
            uuid=identity,
            pci=self._place(address),
            memory_mib=profile.memory_mib,
            compute_capability=profile.compute_capability,
            architecture=profile.architecture,
            numa_node=numa_node(index),
            nvlink_peers=tuple(peers),
            mig=mig,
        )

    def _place(self, address: str) -> PCI:
        return PCI(vendor=_NVIDIA, device=self._profile.pci_device, class_=self._profile.pci_class, address=address)

    def _load(self, address: str) -> Load:
        return self._profile.busy if address in self._busy else self._profile.idle

    def _instance_in_use(self, address: str, instance: Instance) -> bool:
        running = (process.instance for process in self._processes.get(address, ()))
        return instance.uuid in self._busy_instances or instance.uuid in running

    def _settle(self) -> None:
        """Bring what is remembered, and the device files, in line with the document."""
        present = self._present()
        uuids = {address: self._uuid(address) for address in present.values()}
        self._memory.keep_only(self._boot_id(), uuids)
        for address in uuids:
            state = self._state(address)
            still_told = _overlap(state.cleared, self._machine.of(address).xids)
            self._memory.put(address, msgspec.structs.replace(state, cleared=still_told))
        files = [*self._nodes.control()]
        for minor, address in present.items():
            files += self._nodes.card(minor)
            for record in self._state(address).instances:
                files += self._nodes.instance(minor, self._instance(address, record))
        self._nodes.provide(files)


def _differing(before: Machine, after: Machine) -> set[str]:
    """The cards that a change of the document is about."""
    places = {*before.addresses, *after.addresses}
    if (before.profile, before.cards, before.reinstalled) != (after.profile, after.cards, after.reinstalled):
        return places
    return {address for address in places if before.of(address) != after.of(address)}


def _overlap(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """The longest end of the old list with which the new one begins: the document keeps the latest reports only."""
    lengths = range(min(len(old), len(new)), -1, -1)
    return next(new[:length] for length in lengths if old[len(old) - length :] == new[:length])
