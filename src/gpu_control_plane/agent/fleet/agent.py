"""The agent and the kubelet of one simulated node: a snapshot of its objects, the agent's own `decide`, the pods that
the kubelet admits, and the differences written.

Everything is derived from objects in the API server; what is remembered between two calls only ever delays a release.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import CardLost
from gpu_control_plane.agent.cdi.spec import card_name, instance_name
from gpu_control_plane.agent.fleet.admission import Admission, admit
from gpu_control_plane.agent.fleet.node_status import resource_changes, served
from gpu_control_plane.agent.fleet.pod_devices import (
    Grant,
    PodApplyConfiguration,
    Shortage,
    allocated,
    container_devices,
    grants,
    refused,
    requests,
)
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot, probe_hardware
from gpu_control_plane.agent.metrics import FleetMetrics
from gpu_control_plane.agent.mig.apply import Outcome, PartitionTask, partition
from gpu_control_plane.agent.mig.units import parse_unit_id
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import HARDWARE, Machine, boot_id, card_uuid, reset, write_machine
from gpu_control_plane.agent.status_writer import StatusWriter, remove_clear_fault
from gpu_control_plane.agent.step import (
    KubeletSnapshot,
    NodeMemory,
    NodePlan,
    NodeSnapshot,
    Notice,
    RecoveryPolicy,
    Stage,
    StepSettings,
    decide,
)
from gpu_control_plane.agent.units import ContainerDevices, ResourceName, card_of
from gpu_control_plane.agent.views import MANAGER, DeviceView, NodeStateView, NodeView, PodView
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.objects import FieldManager, Key

BY_NODE: Final = "node"
"""The index of devices and pods by their node."""

_MANAGER: Final = FieldManager(MANAGER)


class Views(msgspec.Struct, frozen=True):
    """What the fleet knows of the cluster."""

    nodes: Cache[NodeView]
    states: Cache[NodeStateView]
    devices: Cache[DeviceView]
    pods: Cache[PodView]


class _Probed(msgspec.Struct, frozen=True):
    """The last probe of a node's cards, and what it depended on: as long as that is the same, so is the result."""

    machine: Machine
    busy: frozenset[str]
    snapshot: HardwareSnapshot


class _Memory(msgspec.Struct, frozen=True):
    """What is remembered about a node between two calls."""

    step: NodeMemory = NodeMemory()
    probed: _Probed | None = None
    next_probe: float | None = None
    """When the cards are due for another probe, in seconds since 1970."""
    told: Mapping[ResourceName, frozenset[str]] = {}
    """The devices that the kubelet may allocate, as it was last told."""
    resources: frozenset[ResourceName] = frozenset()
    """Every resource that was ever advertised."""


class SimulatedNodeAgent:
    """Brings one simulated node after the other up to date."""

    def __init__(
        self,
        views: Views,
        client: Client,
        status: StatusWriter,
        metrics: FleetMetrics,
        *,
        recovery: RecoveryPolicy,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._views = views
        self._client = client
        self._status = status
        self._metrics = metrics
        # The simulated kubelet takes every list in at once: there is nothing to wait for.
        self._settings = StepSettings(recovery=recovery, confirm_seconds=0.0)
        self._now = now
        self._monotonic = monotonic
        self._memories: dict[str, _Memory] = {}

    def forget(self, node: str) -> None:
        """The node is gone."""
        self._memories.pop(node, None)

    def forget_all(self) -> None:
        """Another process may have played the fleet meanwhile."""
        self._memories.clear()

    async def admit_freely(self, node: str) -> None:
        """On a simulated node without cards nothing has to be chosen: pods that wait for their devices may start."""
        for pod in self._views.pods.by_index(BY_NODE, node):
            if requests(pod) and grants(pod) is None and not pod.deleting:
                await self._write_pod(pod, allocated(pod, (), self._now()))

    async def reconcile(self, node: NodeView, machine: Machine) -> float | None:
        """Do what is to be done on a node; returns the seconds until it is due again without any change."""
        step = _SimulatedStep(
            node=node,
            machine=machine,
            state=self._views.states.get(node.name),
            devices=tuple(self._views.devices.by_index(BY_NODE, node.name)),
            pods=tuple(sorted(self._views.pods.by_index(BY_NODE, node.name), key=_age)),
            memory=self._memories.get(node.name, _Memory()),
            settings=self._settings,
            now=self._now(),
            monotonic=self._monotonic(),
        )
        decision = step.decide()
        if decision.machine != machine:
            # Before anything is advertised: instances that pods get must exist whatever happens to this process.
            await self._write_machine(node, decision.machine)
        self._memories[node.name] = decision.memory
        await self._advertise(node, decision)
        await self._status.write_devices(decision.plan.reports)
        self._status.record_notices(step.notices)
        await self._answer_pods(decision.admissions)
        await remove_clear_fault(self._client, self._views.devices, step.repaired)
        return decision.due

    async def _advertise(self, node: NodeView, decision: "_Decision") -> None:
        """The Node's status, which is what the kubelet does with the lists, and the GPUNodeState's."""
        plan, state = decision.plan, self._views.states.get(node.name)
        if plan.kubelet_first:
            await self._write_node(node, decision)
        if state is not None:
            await self._status.write_node_state(state, plan)
        if not plan.kubelet_first:
            await self._write_node(node, decision)
        self._metrics.releases.inc(plan.removed)

    async def _write_node(self, node: NodeView, decision: "_Decision") -> None:
        plugin, memory = decision.plan.plugin, decision.memory
        status: dict[str, object] = {}
        if plugin is not None:
            status |= resource_changes(node.status, plugin, memory.resources)
        boot = boot_id(node.name, decision.machine)
        if node.status.node_info.boot_id != boot:
            status["nodeInfo"] = {"bootID": boot}
        if status:
            await self._client.patch(NodeView, node.name, {"status": status}, subresource="status")
        told = {
            resource: frozenset(device.id for device in devices if device.healthy)
            for resource, devices in decision.plan.device_lists.items()
        }
        self._memories[node.name] = msgspec.structs.replace(memory, told=told)

    async def _write_machine(self, node: NodeView, machine: Machine) -> None:
        body = {"metadata": {"annotations": {HARDWARE: write_machine(machine)}}}
        await self._client.patch(NodeView, node.name, body, resource_version=node.metadata.resource_version)

    async def _answer_pods(self, admissions: Iterable[Admission]) -> None:
        """Pods start last: by now their cards say who holds them."""
        for pod, outcome in ((each.pod, each.outcome) for each in admissions):
            if isinstance(outcome, Shortage):
                self._metrics.refusals.inc()
                await self._write_pod(pod, refused(pod, outcome))
            else:
                self._metrics.allocations.inc()
                await self._write_pod(pod, allocated(pod, outcome, self._now()))

    async def _write_pod(self, pod: PodView, desired: PodApplyConfiguration) -> None:
        try:
            await self._client.apply(
                PodView,
                pod.name,
                desired,
                manager=_MANAGER,
                namespace=pod.metadata.namespace,
                subresource="status",
                # Decided on what was read: a decision whose answer got lost must not be made differently.
                resource_version=pod.metadata.resource_version,
            )
        except NotFound:
            return  # It has just been deleted: the cache is about to show that.


class _Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a step of a simulated node leads to."""

    plan: NodePlan
    machine: Machine
    """The document as it has to be written: cards may have been partitioned or reset."""
    admissions: tuple[Admission, ...]
    memory: _Memory
    due: float | None


class _SimulatedStep:
    """One step of a simulated node, on simulated hardware that exists for this step only. Pure."""

    def __init__(
        self,
        *,
        node: NodeView,
        machine: Machine,
        state: NodeStateView | None,
        devices: tuple[DeviceView, ...],
        pods: tuple[PodView, ...],
        memory: _Memory,
        settings: StepSettings,
        now: datetime,
        monotonic: float,
    ) -> None:
        self._node = node
        self._state = state
        self._devices = devices
        self._pods = pods
        self._memory = memory
        self._settings = settings
        self._now = now
        self._monotonic = monotonic
        self.repaired = tuple(each for each in devices if Annotation.CLEAR_FAULT in each.metadata.annotations)
        for device in self.repaired:
            machine = reset(machine, device.spec.pci_address)
        self._machine = machine
        self._cleared = frozenset(device.name for device in self.repaired)
        self._busy: frozenset[str] = frozenset()
        self._probed = memory.probed
        self._next_probe = memory.next_probe
        self._step = memory.step
        self._backend = SimulatedBackend(node.name, machine)
        self.notices: list[tuple[DeviceView, Notice]] = []

    def decide(self) -> _Decision:
        admitted = [(pod, given) for pod in self._pods if (given := grants(pod)) is not None]
        plan, hardware = self._plan(admitted)
        reported = self._state.status.plugin if self._state else None
        resources = self._memory.resources | served(reported) | served(plan.plugin)
        admissions = admit(self._pods, plan.allocatable, hardware.observed, served=resources, status=self._node.status)
        granted = [(each.pod, each.outcome) for each in admissions if not isinstance(each.outcome, Shortage)]
        if any(given for _, given in granted):
            plan, _ = self._plan([*admitted, *granted])  # Decided anew, as if the kubelet had listed them all along.
        memory = _Memory(
            step=plan.memory,
            probed=self._probed,
            next_probe=self._next_probe,
            told=self._memory.told,
            resources=resources | served(plan.plugin),
        )
        return _Decision(
            plan=plan, machine=self._machine, admissions=admissions, memory=memory, due=self._due(plan.look_again)
        )

    def _plan(self, admitted: Sequence[tuple[PodView, tuple[Grant, ...]]]) -> tuple[NodePlan, HardwareSnapshot]:
        """The agent's own decision. Cards are partitioned on the way; the last plan is not remembered here, so that it
        can be made anew."""
        kubelet = KubeletSnapshot(
            allocations=tuple(entry for pod, given in admitted for entry in container_devices(pod, given)),
            allocatable=self._memory.told,
            checkpoint=(),  # What init containers were given is in its list, too.
        )
        partitioned: tuple[tuple[PartitionTask, Outcome], ...] = ()
        while True:
            self._occupy(kubelet.allocations)
            hardware = self._hardware()
            snapshot = NodeSnapshot(
                now=self._now,
                monotonic=self._monotonic,
                node=self._node,
                state=self._state,
                devices=self._devices,
                hardware=hardware,
                kubelet=kubelet,
                injectable=_injectable(hardware),
                partitioned=partitioned,
                settings=self._settings,
            )
            plan = decide(snapshot, self._step)
            self.notices += (each for each in plan.notices if each not in self.notices)
            self._after_probe(plan)
            if plan.stage is not Stage.PARTITION:
                return plan, hardware
            self._step = plan.memory
            partitioned = tuple((task, partition(self._backend, task)[0]) for task in plan.partition)
            self._machine = self._backend.machine

    def _after_probe(self, plan: NodePlan) -> None:
        """What the judgement of a probe asks for."""
        if plan.memory.judged_probe != self._step.judged_probe:
            self._next_probe = plan.next_probe
        if plan.clear_errors:
            for address in plan.clear_errors:
                self._machine = reset(self._machine, address)
            self._backend.update(self._machine)

    def _occupy(self, allocations: Iterable[ContainerDevices]) -> None:
        """Let the simulated cards know on which of them, and on which MIG instances, containers run."""
        swapped = {address: self._machine.of(address).swapped for address in self._machine.addresses}
        addresses = {card_uuid(self._node.name, address, times): address for address, times in swapped.items()}
        cards: set[str] = set()
        instances: set[str] = set()
        for unit_id in (unit_id for entry in allocations for unit_id in entry.ids):
            address, named = addresses.get(card_of(unit_id)), parse_unit_id(unit_id)
            if address is not None and named is None:
                cards.add(address)
            elif address is not None and named is not None:
                with contextlib.suppress(CardLost):
                    place, found = (named.profile, named.start), self._backend.instances(address)
                    instances |= {each.uuid for each in found if (each.profile, each.start) == place}
        self._busy = frozenset(cards | instances)
        self._backend.occupy(cards, instances)

    def _hardware(self) -> HardwareSnapshot:
        """The cards as they are. It counts as another probe when the document has changed, when one is due, and when a
        person says that cards are repaired; that containers come and go only changes readings."""
        last = self._probed
        due = self._next_probe is not None and self._now.timestamp() >= self._next_probe
        anew = last is None or last.machine != self._machine or due or bool(self._cleared)
        if last is not None and not anew and last.busy == self._busy:
            return last.snapshot
        number = (last.snapshot.probe if last is not None else 0) + anew
        snapshot = probe_hardware(self._node.name, self._backend, probe=number, cleared=self._cleared)
        self._cleared = frozenset()
        self._probed = _Probed(self._machine, self._busy, snapshot)
        return snapshot

    def _due(self, look_again: float | None) -> float | None:
        probe = None if self._next_probe is None else max(0.0, self._next_probe - self._now.timestamp())
        return min((wait for wait in (look_again, probe) if wait is not None), default=None)


def _injectable(hardware: HardwareSnapshot) -> frozenset[str]:
    """Simulated cards need no device files: whatever is there can be given to a container."""
    return frozenset(
        name
        for card in hardware.observed.values()
        if card.hardware.uuid is not None
        for name in (
            (instance_name(card.hardware.uuid, each.profile, each.start) for each in card.instances)
            if card.mig_enabled
            else (card_name(card.hardware.uuid),)
        )
    )


def _age(pod: PodView) -> tuple[str, Key]:
    return str(pod.metadata.creation_timestamp), pod.key
