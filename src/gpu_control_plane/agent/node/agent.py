"""The agent of one node: a snapshot is gathered, `decide` makes a plan of it, and the plan is carried out."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import structlog

from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot
from gpu_control_plane.agent.mig.apply import Outcome, PartitionTask, partition
from gpu_control_plane.agent.mig.units import slot_of
from gpu_control_plane.agent.node.components import Clients, Components
from gpu_control_plane.agent.node.gather import Gatherer, Views
from gpu_control_plane.agent.node.metrics import NodeMetrics, OrderClock
from gpu_control_plane.agent.node.validation_runner import CheckSubject
from gpu_control_plane.agent.status_writer import StatusWriter, remove_clear_fault
from gpu_control_plane.agent.step import NodeMemory, NodePlan, NodeSnapshot, Stage, StepSettings, decide
from gpu_control_plane.agent.units import Hold, ResourceName, Unit
from gpu_control_plane.agent.views import DeviceView, NodeView
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.rules.mig_layout import Slot

_log = structlog.get_logger(component="agent.node")


class NodeAgent:
    """Brings the node in line with its orders, its hardware and its pods."""

    def __init__(
        self,
        name: str,
        views: Views,
        components: Components,
        clients: Clients,
        metrics: NodeMetrics,
        *,
        settings: StepSettings,
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._views = views
        self._components = components
        self._clients = clients
        self._metrics = metrics
        self._gatherer = Gatherer(views, components, settings, now=now, monotonic=monotonic)
        self._status = StatusWriter(clients.applier, clients.events, metrics, now)
        self._memory = NodeMemory()
        self._recalled = False
        """Whether what the agent before us knew of holds was read: it may write until it ends."""
        self.orders = OrderClock(metrics.order_seconds, monotonic)
        self.users: dict[str, tuple[User, ...]] = {}
        """The containers on each card, by the address of the card or the UUID of a MIG instance."""

    @property
    def has_decided(self) -> bool:
        """Whether a step was made on probed hardware since the agent started."""
        return self._memory.judged_probe is not None

    @property
    def advertised(self) -> Mapping[Unit, object] | None:
        """The units that the device plugins list; None before that was first decided."""
        return self._memory.advertised

    @property
    def served_resources(self) -> frozenset[ResourceName]:
        return frozenset(unit.resource for unit in self._memory.advertised or ())

    async def reconcile(self, _key: Key) -> Requeue | None:
        node = self._views.nodes.get(self._name)
        if node is None or not self._components.lock.held:
            return None  # Another agent serves the node; when it ends, the first probe brings us here.
        if not self._recalled:
            self._memory = NodeMemory(holds=await asyncio.to_thread(self._components.hold_file.load))
            self._recalled = True
        repaired = await self._probe_repaired()
        plan, snapshot = await self._plan(node)
        if not await self._hold_driver(plan.paused):
            return None
        await self._carry_out(plan, snapshot)
        await remove_clear_fault(self._clients.client, self._views.devices, repaired)
        return None if plan.look_again is None else Requeue(plan.look_again)

    async def _probe_repaired(self) -> tuple[DeviceView, ...]:
        """Probe at once if a person says that cards are repaired, with their old errors forgotten."""
        watch = self._components.watch
        marked = tuple(each for each in self._views.devices if Annotation.CLEAR_FAULT in each.metadata.annotations)
        if not marked or watch.snapshot is None or watch.released:
            return ()
        known = watch.snapshot.observed
        self._components.burn_in.retry(known[device.name] for device in marked if device.name in known)
        await watch.probe(frozenset(device.name for device in marked))
        return marked

    async def _plan(self, node: NodeView) -> tuple[NodePlan, NodeSnapshot]:
        """Decide, partitioning cards until nothing more has to be partitioned first."""
        partitioned: tuple[tuple[PartitionTask, Outcome], ...] = ()
        while True:
            snapshot = await self._gatherer.gather(node, self._memory, partitioned)
            plan = decide(snapshot, self._memory)
            log_changes(self._memory, plan.memory)
            self._status.record_notices(plan.notices)
            self._memory = plan.memory
            await self._save_holds(plan.memory.holds)
            await self._components.watch.clear_errors(plan.clear_errors)
            if plan.next_probe is not None:
                self._components.watch.probe_by(plan.next_probe)
            if plan.stage is not Stage.PARTITION:
                return plan, snapshot
            partitioned = await self._partition(plan.partition)

    async def _save_holds(self, holds: frozenset[Hold]) -> None:
        """A full disk must not keep the agent from working: then only a restart forgets."""
        if self._components.hold_file.is_current(holds):
            return
        try:
            await asyncio.to_thread(self._components.hold_file.save, holds)
        except OSError as error:
            _log.warning("what pods hold cannot be written down", why=str(error))

    async def _partition(self, tasks: Iterable[PartitionTask]) -> tuple[tuple[PartitionTask, Outcome], ...]:
        done: list[tuple[PartitionTask, Outcome]] = []
        changed = False
        for task in tasks:
            outcome, touched = await self._components.watch.call(partition, task)
            done.append((task, outcome))
            changed = changed or touched
        if changed:
            await self._components.watch.probe()
        return tuple(done)

    async def _hold_driver(self, paused: str | None) -> bool:
        """Release the driver while it is wanted for maintenance, and acquire it afterwards. False when it was acquired
        just now: the next probe brings us back here."""
        watch = self._components.watch
        if paused is not None and not watch.released:
            _log.info("releasing the driver", reason=paused)
            await self._components.validation.break_off()
            await self._components.burn_in.break_off()
            await watch.release_driver()
        elif paused is None and watch.released:
            _log.info("acquiring the driver")
            if self.has_decided:
                self._components.validation.forget()
            watch.acquire_driver()
            return False
        return True

    async def _carry_out(self, plan: NodePlan, snapshot: NodeSnapshot) -> None:
        match plan.stage:
            case Stage.UNPROBED:
                await self._write_status(plan)
            case Stage.KUBELET_AWAY:
                await self._status.write_devices(plan.reports)
            case _:
                assert snapshot.hardware is not None  # noqa: S101 - such a plan is made on probed hardware only
                await self._advertise(plan, snapshot.hardware)
                await self._status.write_devices(plan.reports)
                self._consider_tests(plan, snapshot, snapshot.hardware)

    async def _advertise(self, plan: NodePlan, hardware: HardwareSnapshot) -> None:
        """CDI spec, allocator, kubelet and `status.plugin`, in the order that the plan says."""
        components = self._components
        if plan.paused is None:
            await components.cdi_spec.write(plan.cdi_held)
        components.allocator.use(plan.allocatable, hardware.observed, components.cdi_spec.description)
        self.users = _users(plan.holders, hardware)
        if plan.kubelet_first:
            await self._tell_kubelet(plan)
            await self._write_status(plan)
        else:
            await self._write_status(plan)
            await self._tell_kubelet(plan)
        self._metrics.releases.inc(plan.removed)
        if plan.carried_out is not None:
            self.orders.carried_out(plan.carried_out)

    async def _tell_kubelet(self, plan: NodePlan) -> None:
        plugins = self._components.plugins
        for resource, devices in plan.device_lists.items():
            await plugins.advertise(resource, devices)
        for resource in plugins.states.keys() - plan.device_lists.keys():
            await plugins.withdraw(resource)
        if plan.send_again:
            plugins.send_again()

    async def _write_status(self, plan: NodePlan) -> None:
        state = self._views.states.get(self._name)
        if state is not None:
            await self._status.write_node_state(state, plan, self._components.validation.status)

    def _consider_tests(self, plan: NodePlan, snapshot: NodeSnapshot, hardware: HardwareSnapshot) -> None:
        """Burn-in and the checks of the node's software; neither touches a driver that is released, or hangs."""
        if plan.paused is not None or snapshot.driver_hung:
            return
        for card, message in plan.burn_in_starts.items():
            self._components.burn_in.start(hardware.observed[card], message)
        self._components.validation.consider(
            _check_subject(snapshot, hardware),
            in_use=frozenset(_device(unit, hardware) for unit in plan.held),
            faulted=frozenset(
                hardware.observed[card].address for card, verdict in plan.memory.verdicts.items() if not verdict.healthy
            ),
            unconfirmed=plan.memory.unconfirmed_since is not None,
        )


def log_changes(before: NodeMemory, after: NodeMemory) -> None:
    """Log verdicts, holds and partitions that differ from before."""
    for card, verdict in after.verdicts.items():
        known = before.verdicts.get(card)
        if known is None or known.healthy != verdict.healthy:
            level = _log.info if verdict.healthy else _log.warning
            level("card health", card=card, healthy=verdict.healthy, reason=verdict.reason, message=verdict.message)
    for hold in after.forgotten_since.keys() - before.forgotten_since.keys():
        _log.warning("the kubelet has forgotten a pod that still runs", unit=hold.unit.id, pod=hold.pod)
    for hold in before.forgotten_since.keys() - after.forgotten_since.keys():
        _log.info("a pod that the kubelet had forgotten has ended", unit=hold.unit.id, pod=hold.pod)
    for card, attempt in after.attempts.items():
        last = before.attempts.get(card)
        outcome = attempt.outcome
        if last is None or (last.outcome.result, last.outcome.reason) != (outcome.result, outcome.reason):
            _log.info("card partitioned", card=card, result=outcome.result.value, why=outcome.reason)


def _users(holders: Mapping[Unit, User], hardware: HardwareSnapshot) -> dict[str, tuple[User, ...]]:
    found: dict[str, list[User]] = {}
    for unit, user in holders.items():
        found.setdefault(_device(unit, hardware), []).append(user)
    return {device: tuple(users) for device, users in found.items()}


def _check_subject(snapshot: NodeSnapshot, hardware: HardwareSnapshot) -> CheckSubject:
    ordered = frozenset(resource.name for order in snapshot.orders for resource in order.resources)
    allocatable = snapshot.kubelet.allocatable if snapshot.kubelet is not None else {}
    return CheckSubject(
        driver=hardware.node_facts.driver,
        cards=tuple((card.id, card.hardware.uuid) for card in hardware.observed.values()),
        ordered=ordered,
        listed={name: bool(allocatable.get(name)) for name in ordered},
    )


def _device(unit: Unit, hardware: HardwareSnapshot) -> str:
    """The address of a whole card, or the UUID of a MIG instance; empty when that has gone."""
    card, slot = hardware.observed.get(unit.card), slot_of(unit)
    if card is None or slot is None:
        return card.address if card else ""
    return next((instance.uuid for instance in card.instances if Slot.of(instance) == slot), "")
