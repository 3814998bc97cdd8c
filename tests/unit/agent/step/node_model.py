"""A node that carries out what `decide` says: simulated cards, a kubelet that may lag behind, and the objects about it.

It decides nothing itself. Tests choose what happens: orders, pods, faults, lost answers, restarts, a second agent.
Which of two agents may act and register is asked of their locks, as the real ones do.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec

from gpu_control_plane.agent.cdi.spec import card_name, instance_name
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot, probe_hardware
from gpu_control_plane.agent.mig.apply import partition
from gpu_control_plane.agent.mig.units import parse_unit_id
from gpu_control_plane.agent.node.node_lock import NodeLock
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import Machine, new_machine
from gpu_control_plane.agent.step import (
    Allocatable,
    BurnInSnapshot,
    KubeletSnapshot,
    NodeMemory,
    NodePlan,
    NodeSnapshot,
    Stage,
    StepSettings,
    blocking_hold,
    decide,
    recorded_holds,
)
from gpu_control_plane.agent.units import ContainerDevices, Hold, PodDevices, Unit, card_of
from gpu_control_plane.agent.views import (
    DeviceStatus,
    DeviceView,
    NodeStateStatus,
    NodeStateView,
    NodeStatus,
    NodeView,
)
from gpu_control_plane.api.gpunodestate import Assignment, NodeStateSpec
from gpu_control_plane.kube.objects import ObjectMeta
from unit.agent.step.builders import NODE, NOW, device


class AgentModel:
    """What one agent's process knows. Without a lock it is the only one."""

    def __init__(self, lock: NodeLock | None = None, holds: frozenset[Hold] = frozenset()) -> None:
        self.lock = lock
        self.memory = NodeMemory(holds=holds)
        self.sent: dict[str, dict[str, bool]] = {}
        """The lists that its device plugins have sent: health by device ID, by resource."""
        self.sends = False
        """Whether it has sent a list again that the kubelet has not taken in yet."""
        self.recorded: frozenset[PodDevices] = frozenset()
        """What it saw in the kubelet's checkpoint at allocations since its last step."""
        self.in_force = Allocatable()
        """What its Allocate goes by."""

    @property
    def is_the_one(self) -> bool:
        """Whether it may act on the node, register with the kubelet, and allocate."""
        return self.lock is None or self.lock.held


class NodeModel:
    """One node. `step` makes a step as the agent does; the kubelet takes a list in when it is told to."""

    def __init__(
        self, model: str = "H200-141", cards: int = 2, settings: StepSettings | None = None, **options: Any
    ) -> None:
        self.settings = settings or StepSettings()
        self.backend = SimulatedBackend(NODE, new_machine(model, cards), **options)
        self.backend.open()
        self.agent = AgentModel()
        """The agent that serves the node."""
        self.cut_off: AgentModel | None = None
        """One whose lock was replaced: it lives on for a while, and so do its streams."""
        self.node = NodeView(metadata=ObjectMeta(name=NODE))
        self.state = NodeStateView(metadata=ObjectMeta(name=NODE, generation=1))
        self.hardware: HardwareSnapshot = probe_hardware(NODE, self.backend, probe=1)
        self.devices = tuple(device(card) for card in self.hardware.observed.values())
        self.cards = tuple(self.hardware.observed)
        self.monotonic = 1000.0
        self.now = NOW
        self.heard: dict[str, dict[str, bool]] = {}
        """The lists that the kubelet has taken in."""
        self.streams: dict[str, AgentModel] = {}
        """Whose plugin the kubelet listens to, by resource."""
        self.listed: dict[tuple[str, str], Unit] = {}
        """Every unit that was ever in a list, by resource and device ID."""
        self.pods: dict[str, ContainerDevices] = {}
        """What the kubelet lists. A pod's UID is its name."""
        self.checkpoint: dict[str, ContainerDevices] = {}
        """What its checkpoint records: init containers too, and pods that have ended, until it is written anew."""
        self.known: dict[str, ContainerDevices] = {}
        """What it would write into it. Whoever asks for its list has it drop pods that have ended."""
        self.active: set[str] = set()
        """The pods that the API server has and that have not ended."""
        self.processes: dict[str, ContainerDevices] = {}
        """The pods whose containers run, whoever knows of them."""
        self.saved: frozenset[Hold] = frozenset()
        """What the agent wrote down of holds."""
        self.in_flight: frozenset[Unit] = frozenset()
        self.burn_in = BurnInSnapshot()
        self.partitions = 0
        self.plan: NodePlan | None = None

    # What tests do

    def order(self, *orders: Assignment) -> None:
        metadata = msgspec.structs.replace(self.state.metadata, generation=self.state.metadata.generation + 1)
        self.state = msgspec.structs.replace(self.state, metadata=metadata, spec=NodeStateSpec(assignments=orders))

    def label(self, **labels: str) -> None:
        metadata = msgspec.structs.replace(self.node.metadata, labels=labels)
        self.node = msgspec.structs.replace(self.node, metadata=metadata)

    def show_on_node(self, **allocatable: str) -> None:
        self.node = msgspec.structs.replace(self.node, status=NodeStatus(allocatable=allocatable))

    def change(self, machine: Machine) -> None:
        """Something happens to the hardware, and is probed."""
        self.backend.update(machine)
        self.probe()

    def probe(self, cleared: Iterable[str] = ()) -> None:
        for card in cleared:
            self.backend.clear(self.hardware.observed[card].address)
        number = self.hardware.probe + 1
        self.hardware = probe_hardware(NODE, self.backend, probe=number, cleared=frozenset(cleared))

    def restart(self, lock: NodeLock | None = None) -> None:
        """A new agent: only holds are remembered, and the kubelet allocates nothing before it has registered."""
        self._end_streams(self.agent)
        self._begin(lock or self.agent.lock)

    def replace(self, lock: NodeLock) -> None:
        """A new agent, of which the one before knows nothing: the kubelet still listens to that one."""
        self.end_cut_off()
        self.cut_off = self.agent
        self._begin(lock)

    def end_cut_off(self) -> None:
        if self.cut_off is not None:
            self._end_streams(self.cut_off)
            self.cut_off = None

    def restart_kubelet(self) -> None:
        """All streams end, and every agent that may registers again."""
        self.heard, self.streams = {}, {}
        for agent in (self.agent, self.cut_off):
            if agent is not None:
                self._hear(agent)

    def _begin(self, lock: NodeLock | None) -> None:
        self.agent = AgentModel(lock, self.saved)
        self.hardware = probe_hardware(NODE, self.backend, probe=1)

    def _end_streams(self, agent: AgentModel) -> None:
        for resource in [name for name, whose in self.streams.items() if whose is agent]:
            del self.streams[resource], self.heard[resource]

    def allocate(self, resource: str, unit_id: str, pod: str, *, init: bool = False) -> None:
        """The kubelet gives a unit to a pod; it does not list init containers."""
        self.streams.get(resource, self.agent).recorded |= self._checkpoint()
        self._drop_ended()
        entry = ContainerDevices("team", pod, "main", resource, (unit_id,))
        if not init:
            self.pods[pod] = entry
        self.known[pod] = entry
        self.checkpoint = dict(self.known)
        self.active.add(pod)
        self.start_processes(pod)

    def refused(self, resource: str, unit_id: str) -> bool:
        """Whether Allocate refuses to give this unit to another pod since one still uses it, or since another agent
        serves the node. That it also refuses what is no longer on offer is left out: the lists alone have to be safe,
        as far as the kubelet knows its pods."""
        asked = self.streams.get(resource, self.agent)
        if not asked.is_the_one:
            return True
        units = [unit for key, unit in self.units.items() if key == (resource, unit_id)]
        recorded = recorded_holds(self._checkpoint() | asked.recorded, self.hardware.observed.values())
        holds = asked.in_force.holds | recorded
        return any(blocking_hold(unit, holds, self.processes.keys()) for unit in units)

    def end_pod(self, pod: str) -> None:
        """A pod ends in order: its processes first, then what is known of it. The checkpoint keeps it for a while."""
        self.end_processes(pod)
        self.delete_by_force(pod)

    def delete_by_force(self, pod: str) -> None:
        """API server and kubelet forget the pod; its containers run on."""
        self.pods.pop(pod, None)
        self.active.discard(pod)

    def lose_checkpoint(self) -> None:
        """The kubelet starts again without its checkpoint."""
        self.pods, self.checkpoint, self.known = {}, {}, {}

    def end_processes(self, pod: str) -> None:
        """The containers end, or their sandbox is lost."""
        self.processes.pop(pod, None)
        self._occupy()

    def start_processes(self, pod: str) -> None:
        """The containers start, perhaps again, with what the kubelet recorded for them."""
        self.processes[pod] = self.known[pod]
        self._occupy()

    def hear(self) -> None:
        """The kubelet takes in what it was sent."""
        self._hear(self.agent)

    def _hear(self, agent: AgentModel) -> None:
        """Lists on open streams, and those of resources that the agent may register. After every one of them the
        kubelet writes its checkpoint anew."""
        before = {name: self.heard[name] for name, whose in self.streams.items() if whose is agent}
        taken = {name: dict(devices) for name, devices in agent.sent.items() if name in before or agent.is_the_one}
        if agent.sends or before != taken:
            self.checkpoint, agent.sends = dict(self.known), False
        self._end_streams(agent)
        self.heard |= taken
        self.streams |= dict.fromkeys(taken, agent)

    def pass_time(self, seconds: float) -> None:
        self.monotonic += seconds
        self.now += timedelta(seconds=seconds)

    # What the agent does

    def snapshot(self, partitioned: tuple[Any, ...] = (), *, kubelet: bool = True) -> NodeSnapshot:
        return NodeSnapshot(
            now=self.now,
            monotonic=self.monotonic,
            node=self.node,
            state=self.state,
            devices=self.devices,
            hardware=self.hardware,
            kubelet=self._kubelet() if kubelet else None,
            injectable=self._injectable(),
            partitioned=partitioned,
            burn_in=self.burn_in,
            settings=self.settings,
        )

    def step(self, *, hears: bool = True, kubelet: bool = True, dies_after: int | None = None) -> NodePlan:
        """Decide and carry out. `dies_after` so many writes the agent is killed."""
        partitioned: tuple[Any, ...] = ()
        while True:
            plan = decide(self.snapshot(partitioned, kubelet=kubelet), self.memory)
            self.plan, self.agent.memory, self.saved = plan, plan.memory, plan.memory.holds
            self.agent.recorded = frozenset() if kubelet else self.agent.recorded
            for address in plan.clear_errors:
                self.backend.clear(address)
            if plan.stage is not Stage.PARTITION:
                break
            partitioned = tuple((task, partition(self.backend, task)[0]) for task in plan.partition)
            self.partitions += len(partitioned)
            self.probe()
        if plan.stage is Stage.COMPLETE:
            self.agent.in_force = plan.allocatable
            writes = [self._tell_kubelet, self._write_status]
            for write in writes[:dies_after] if plan.kubelet_first else writes[::-1][:dies_after]:
                write(plan)
            if dies_after is not None:
                self.restart()
                return plan
        self._write_devices(plan)
        if hears:
            self.hear()
        return plan

    def settle(self, steps: int = 12, seconds: float = 10.0) -> NodePlan:
        """Time enough for everything that can happen to happen."""
        for _ in range(steps - 1):
            self.pass_time(seconds)
            self.step()
        self.pass_time(seconds)
        return self.step()

    # What follows from it

    @property
    def memory(self) -> NodeMemory:
        return self.agent.memory

    @property
    def sent(self) -> dict[str, dict[str, bool]]:
        return self.agent.sent

    @property
    def units(self) -> dict[tuple[str, str], Unit]:
        """Every unit that is or was listed, by resource and device ID."""
        now = (*self.advertised, *self.known_units)
        return {**self.listed, **{(unit.resource, unit.id): unit for unit in now}}

    @property
    def advertised(self) -> set[Unit]:
        return set(self.memory.advertised or ())

    @property
    def allocatable(self) -> set[Unit]:
        """What the kubelet may allocate, by the lists that it has taken in. An agent that was cut off refuses."""
        units = self.units
        return {
            units[resource, unit_id]
            for resource, devices in self.heard.items()
            for unit_id, healthy in devices.items()
            if healthy and (resource, unit_id) in units and self.streams[resource].is_the_one
        }

    @property
    def known_units(self) -> set[Unit]:
        return set(self.plan.allocatable.units) if self.plan is not None else set()

    @property
    def free(self) -> list[tuple[str, str]]:
        """Resource and device ID of what the kubelet may give to the next pod."""
        known = (*self.pods.values(), *(self.known[pod] for pod in self.active if pod in self.known))
        taken = {(entry.resource, unit_id) for entry in known for unit_id in entry.ids}
        return sorted(
            (resource, unit_id)
            for resource, devices in self.heard.items()
            for unit_id, healthy in devices.items()
            if healthy and (resource, unit_id) not in taken
        )

    def free_on(self, card: str) -> list[tuple[str, str]]:
        uuid = self.hardware.observed[card].hardware.uuid
        return [(resource, unit_id) for resource, unit_id in self.free if card_of(unit_id) == uuid]

    @property
    def problems(self) -> dict[str, str]:
        plugin = self.state.status.plugin
        return {problem.inventory_id: problem.message for problem in plugin.problems} if plugin else {}

    def device(self, card: str) -> DeviceView:
        return next(each for each in self.devices if each.name == card)

    def _drop_ended(self) -> None:
        self.known = {pod: entry for pod, entry in self.known.items() if pod in self.active}

    def _kubelet(self) -> KubeletSnapshot:
        self._drop_ended()
        return KubeletSnapshot(
            allocations=tuple(self.pods.values()),
            allocatable={
                resource: {unit_id for unit_id, healthy in devices.items() if healthy}
                for resource, devices in self.heard.items()
            },
            in_flight=self.in_flight,
            checkpoint=tuple(self._checkpoint()),
            recorded_before=tuple(self.agent.recorded),
            living=frozenset(self.processes),
        )

    def _checkpoint(self) -> frozenset[PodDevices]:
        return frozenset(PodDevices(pod, entry.resource, entry.ids) for pod, entry in self.checkpoint.items())

    def _injectable(self) -> frozenset[str]:
        names: set[str] = set()
        for card in self.hardware.observed.values():
            uuid = card.hardware.uuid or ""
            if card.mig_enabled:
                names |= {instance_name(uuid, each.profile, each.start) for each in card.instances}
            else:
                names.add(card_name(uuid))
        return frozenset(names)

    def _tell_kubelet(self, plan: NodePlan) -> None:
        self.agent.sent = {
            resource: {each.id: each.healthy for each in devices} for resource, devices in plan.device_lists.items()
        }
        self.agent.sends = self.agent.sends or plan.send_again
        self.listed = self.units

    def _write_status(self, plan: NodePlan) -> None:
        self.state = msgspec.structs.replace(self.state, status=NodeStateStatus(plugin=plan.plugin))

    def _write_devices(self, plan: NodePlan) -> None:
        written = {report.device.name: report.desired.status for report in plan.reports}
        self.devices = tuple(
            each if each.name not in written else msgspec.structs.replace(each, status=_merged(each.status, own))
            for each in self.devices
            for own in (written.get(each.name),)
        )

    def _occupy(self) -> None:
        ids = {unit_id for entry in self.processes.values() for unit_id in entry.ids}
        cards = {
            card.address
            for card in self.hardware.observed.values()
            if any(card_of(unit_id) == card.hardware.uuid and parse_unit_id(unit_id) is None for unit_id in ids)
        }
        self.backend.occupy(cards)


def _merged(status: DeviceStatus, own: Any) -> DeviceStatus:
    return msgspec.structs.replace(
        status,
        used_by=own.used_by or (),
        telemetry=own.telemetry,
        burn_in=own.burn_in or None,
        conditions=own.conditions,
    )
