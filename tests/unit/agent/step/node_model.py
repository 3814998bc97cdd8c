"""A node that carries out what `decide` says: simulated cards, a kubelet that may lag behind, and the objects about it.

It decides nothing itself. Tests choose what happens: orders, pods, faults, lost answers, restarts.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec

from gpu_control_plane.agent.cdi.spec import card_name, instance_name
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot, probe_hardware
from gpu_control_plane.agent.mig.apply import partition
from gpu_control_plane.agent.mig.units import parse_unit_id
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
    PodView,
)
from gpu_control_plane.api.gpunodestate import Assignment, NodeStateSpec
from gpu_control_plane.kube.objects import ObjectMeta
from unit.agent.step.builders import NODE, NOW, device


class NodeModel:
    """One node. `step` makes a step as the agent does; the kubelet takes a list in when it is told to."""

    def __init__(
        self, model: str = "H200-141", cards: int = 2, settings: StepSettings | None = None, **options: Any
    ) -> None:
        self.settings = settings or StepSettings()
        self.backend = SimulatedBackend(NODE, new_machine(model, cards), **options)
        self.backend.open()
        self.memory = NodeMemory()
        self.node = NodeView(metadata=ObjectMeta(name=NODE))
        self.state = NodeStateView(metadata=ObjectMeta(name=NODE, generation=1))
        self.hardware: HardwareSnapshot = probe_hardware(NODE, self.backend, probe=1)
        self.devices = tuple(device(card) for card in self.hardware.observed.values())
        self.cards = tuple(self.hardware.observed)
        self.monotonic = 1000.0
        self.now = NOW
        self.sent: dict[str, dict[str, bool]] = {}
        """The lists that the device plugins have sent: health by device ID, by resource."""
        self.heard: dict[str, dict[str, bool]] = {}
        """What the kubelet has taken in of them."""
        self.pods: dict[str, ContainerDevices] = {}
        """What the kubelet lists. A pod's UID is its name."""
        self.checkpoint: dict[str, ContainerDevices] = {}
        """What its checkpoint records: init containers too, and pods that have ended, until the next allocation."""
        self.recorded: frozenset[PodDevices] = frozenset()
        """What the agent saw in it at allocations since its last step."""
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
        self.in_force = Allocatable()
        """What Allocate goes by."""

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

    def restart(self) -> None:
        """A new agent: only holds are remembered, and the kubelet allocates nothing before it has registered."""
        self.memory = NodeMemory(holds=self.saved)
        self.hardware = probe_hardware(NODE, self.backend, probe=1)
        self.sent, self.heard = {}, {}

    def allocate(self, resource: str, unit_id: str, pod: str, *, init: bool = False) -> None:
        """The kubelet gives a unit to a pod; it does not list init containers."""
        self.recorded |= self._checkpoint()
        self.checkpoint = {name: entry for name, entry in self.checkpoint.items() if name in self.active}
        entry = ContainerDevices("team", pod, "main", resource, (unit_id,))
        if not init:
            self.pods[pod] = entry
        self.checkpoint[pod] = entry
        self.active.add(pod)
        self.start_processes(pod)

    def refused(self, resource: str, unit_id: str) -> bool:
        """Whether Allocate refuses to give this unit to another pod since one still uses it. That it also refuses what
        is no longer on offer is left out: the lists alone have to be safe, as far as the kubelet knows its pods."""
        advertised = (*self.advertised, *self.known_units)
        units = [unit for unit in advertised if (unit.resource, unit.id) == (resource, unit_id)]
        recorded = recorded_holds(self._checkpoint() | self.recorded, self.hardware.observed.values())
        holds = self.in_force.holds | recorded
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
        self.pods, self.checkpoint = {}, {}

    def end_processes(self, pod: str) -> None:
        """The containers end, or their sandbox is lost."""
        self.processes.pop(pod, None)
        self._occupy()

    def start_processes(self, pod: str) -> None:
        """The containers start, perhaps again, with what the kubelet recorded for them."""
        self.processes[pod] = self.checkpoint[pod]
        self._occupy()

    def hear(self) -> None:
        """The kubelet takes in what it was sent."""
        self.heard = {resource: dict(devices) for resource, devices in self.sent.items()}

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
            self.plan, self.memory, self.saved = plan, plan.memory, plan.memory.holds
            self.recorded = frozenset() if kubelet else self.recorded
            for address in plan.clear_errors:
                self.backend.clear(address)
            if plan.stage is not Stage.PARTITION:
                break
            partitioned = tuple((task, partition(self.backend, task)[0]) for task in plan.partition)
            self.partitions += len(partitioned)
            self.probe()
        if plan.stage is Stage.COMPLETE:
            self.in_force = plan.allocatable
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
    def advertised(self) -> set[Unit]:
        return set(self.memory.advertised or ())

    @property
    def allocatable(self) -> set[Unit]:
        """What the kubelet may allocate, by the lists that it has taken in."""
        units = {(unit.resource, unit.id): unit for unit in (*self.advertised, *self.known_units)}
        return {
            units[resource, unit_id]
            for resource, devices in self.heard.items()
            for unit_id, healthy in devices.items()
            if healthy and (resource, unit_id) in units
        }

    @property
    def known_units(self) -> set[Unit]:
        return set(self.plan.allocatable.units) if self.plan is not None else set()

    @property
    def free(self) -> list[tuple[str, str]]:
        """Resource and device ID of what the kubelet may give to the next pod."""
        known = (*self.pods.values(), *(self.checkpoint[pod] for pod in self.active if pod in self.checkpoint))
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

    def _kubelet(self) -> KubeletSnapshot:
        return KubeletSnapshot(
            allocations=tuple(self.pods.values()),
            allocatable={
                resource: {unit_id for unit_id, healthy in devices.items() if healthy}
                for resource, devices in self.heard.items()
            },
            in_flight=self.in_flight,
            pods=tuple(
                PodView(metadata=ObjectMeta(name=pod, namespace="team", uid=pod)) for pod in sorted(self.active)
            ),
            checkpoint=tuple(self._checkpoint() | self.recorded),
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
        self.sent = {
            resource: {each.id: each.healthy for each in devices} for resource, devices in plan.device_lists.items()
        }

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
