"""What each alert is about, raised: the product's own decision on it, and its own recorder of Events.

Nothing here says what is written; `test_alert_events` compares that with what the alert promises.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from monitoring.promql import CONTROLLER, LEASE, NAMESPACE
from msgspec.structs import replace

from gpu_control_plane.agent.backends.interface import Readings
from gpu_control_plane.agent.health import Verdict
from gpu_control_plane.agent.node.agent import log_changes
from gpu_control_plane.agent.simulated.machine import Machine, break_memory, overheat, report_xid, wear_out
from gpu_control_plane.agent.status_writer import StatusWriter
from gpu_control_plane.api.examples import node_state
from gpu_control_plane.api.gpupool import PoolPhase
from gpu_control_plane.api.names import DeviceCondition, NodeCondition, Reason
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeAnnotation, UpgradeState
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.bootstrap.decide import decide as decide_software
from gpu_control_plane.bootstrap.events import record_changes
from gpu_control_plane.inventory import completeness
from gpu_control_plane.inventory.events import inventory_changed, record
from gpu_control_plane.kube import Client, EventRecorder, Key, Object, ObjectMeta, Runtime
from gpu_control_plane.kube.backoff import Backoff
from gpu_control_plane.kube.certificate_rotation import Subject
from gpu_control_plane.kube.certificate_secret import ServingCertificates
from gpu_control_plane.kube.conditions import FALSE, condition
from gpu_control_plane.kube.config import Config
from gpu_control_plane.kube.controller import Controller
from gpu_control_plane.kube.errors import Forbidden
from gpu_control_plane.kube.leader import Leadership, Lease, LeaseSpec, Timing
from gpu_control_plane.kube.metrics import Metrics
from gpu_control_plane.kube.process_events import PERSISTENT_FAILURES
from gpu_control_plane.kube.replicas import Deployment, Replicas
from gpu_control_plane.kube.times import micro_time
from gpu_control_plane.operator.stack.events import record_status_change
from gpu_control_plane.operator.upgrade.actions import EvictPods, NodePatch
from gpu_control_plane.operator.upgrade.evictor import Evictor
from gpu_control_plane.operator.upgrade.executor import ActionExecutor
from gpu_control_plane.operator.upgrade.node_view import Refusal
from gpu_control_plane.operator.upgrade.step import step
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.pools.events import record_cards, record_expired, record_node, record_pending, record_pool
from gpu_control_plane.pools.explain.pod import explain_pod
from gpu_control_plane.pools.status import pool_status
from gpu_control_plane.ray.waiting import controller as overdue
from gpu_control_plane.ray.waiting.controller import Overdue, record_overdue
from gpu_control_plane.ray.waiting.lookup import WaitingLookup
from gpu_control_plane.rules.pool_validation import PoolFault
from unit.agent.node.test_burnin_runner import burning_in
from unit.agent.node.test_validation_runner import NONE, UNLISTED
from unit.agent.node.test_validation_runner import running as checking
from unit.agent.step.node_model import NodeModel
from unit.bootstrap.builders import observed
from unit.bootstrap.test_situations import SITUATIONS
from unit.operator.scripted_cache import ScriptedCache
from unit.operator.scripted_cache import running as delivering
from unit.operator.stack.test_status import BROKEN, GOOD, status_with
from unit.operator.upgrade.builders import CRASHING, POLICY, ago, cordoned, gpu_pod
from unit.operator.upgrade.builders import NOW as UPGRADE_NOON
from unit.pools.test_burnin import report as burn_in_report
from unit.pools.test_decide import node_with, only, pool
from unit.pools.test_explain_pod import TRAINING, situation
from unit.pools.test_explain_pod import pod as pod_for
from unit.pools.test_maintenance import INSTANCES
from unit.pools.test_maintenance import change as divide_anew
from unit.pools.test_maintenance import running as holding
from unit.pools.test_status import POOL
from unit.ray.waiting import builders as ray
from waiting import until

NOON: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
_DENIED: Final = Forbidden(403, "Forbidden", "leases.coordination.k8s.io is forbidden")

type Raise = Callable[[EventRecorder, Path], Awaitable[None]]
"""Raises a situation. The folder is for what needs files."""


# Cards


class _Card:
    """A card, its agent and the controller of pools."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._status = StatusWriter(cast("Any", None), recorder, cast("Any", None), lambda: NOON)
        self.node = NodeModel(cards=1)
        (self.name,) = self.node.cards
        self.address = self.node.devices[0].spec.pci_address
        self._pools = node_with(pool(), approved="a")
        self._pools.settle()
        self.step()

    def happens(self, change: Callable[[Machine, str], Machine]) -> None:
        self.node.change(change(self.node.backend.machine, self.address))
        self.step()

    def measures(self, *, temperature: int | None = None, corrected: int = 0) -> None:
        """A minute later the card shows this."""
        self.node.pass_time(60)
        self.node.probe()
        card = self.node.hardware.observed[self.name]
        card = replace(
            card,
            readings=Readings(temperature=temperature),
            signals=replace(card.signals, corrected_ecc=corrected),
        )
        self.node.hardware = replace(self.node.hardware, observed={self.name: card})
        self.step()

    def step(self) -> None:
        before = self.node.memory
        plan = self.node.step()
        log_changes(before, self.node.memory)
        self._status.record_notices(plan.notices)
        self._pool(self.node.memory.verdicts[self.name])

    def _pool(self, verdict: Verdict) -> None:
        device = self._pools.devices[only(self._pools)]
        healthy = condition((), DeviceCondition.HEALTHY, verdict.healthy, verdict.reason, verdict.message, now=NOON)
        self._pools.devices[device.name] = replace(device, status=replace(device.status, conditions=(healthy,)))
        record_cards(self._recorder, self._pools.plan().cards, self._pools.state)
        self._pools.settle()


def _card(*changes: Callable[[Machine, str], Machine]) -> Raise:
    async def raised(recorder: EventRecorder, _folder: Path) -> None:
        for change in changes:
            _Card(recorder).happens(change)

    return raised


def _xid(code: int) -> Callable[[Machine, str], Machine]:
    return lambda machine, address: report_xid(machine, address, code)


def _contained(machine: Machine, address: str) -> Machine:
    return report_xid(break_memory(machine, address), address, 94)


async def _heating_up(recorder: EventRecorder, _folder: Path) -> None:
    card = _Card(recorder)
    for minute in range(60):
        card.measures(temperature=60 + minute // 2)


async def _memory_errors_rising(recorder: EventRecorder, _folder: Path) -> None:
    card = _Card(recorder)
    for minute in range(30):
        card.measures(corrected=5 * minute)


async def _burn_in_failed(recorder: EventRecorder, _folder: Path) -> None:
    async with burning_in() as node:
        await node.reason()
        node.program.end(Reason.MEMORY_ERRORS)
        await node.ends_as()
    tested = burn_in_report(node_with(pool(), approved="a"), FALSE, ended=-10)
    record_cards(recorder, tested.plan().cards, tested.state)


# Nodes


def _software(*situations: str, fails_check: bool = False) -> Raise:
    """A node on which all was well comes into these situations, one by one."""

    async def raised(recorder: EventRecorder, folder: Path) -> None:
        well = node_state("worker-3")
        well = replace(well, status=replace(well.status, conditions=decide_software(observed()).conditions))
        for name in situations:
            found = decide_software(SITUATIONS[name][0]).conditions
            record_changes(recorder, well, replace(well, status=replace(well.status, conditions=found)))
        if fails_check:
            async with checking(folder, confirm=0.01) as checked:
                checked.runner.consider(UNLISTED, in_use=NONE)
                await until(lambda: checked.outcomes, saying="a check")

    return raised


async def _inventory_incomplete(recorder: EventRecorder, _folder: Path) -> None:
    for found in (
        completeness.NODE_GONE,
        completeness.no_report("w1", NAMESPACE, 8),
        completeness.invalid_report("no PCI address"),
        completeness.no_cards(known=True),
        completeness.bus_hidden("w1"),
        completeness.cards_missing("w1", 8, 7, ()),
        completeness.cards_off_bus("w1", ("0000:18:00.0",)),
        completeness.duplicate_uuids("w1", ("0000:18:00.0",), "w2"),
    ):
        now = condition((), NodeCondition.INVENTORY_COMPLETE, False, found.reason, found.message, now=NOON)
        record(recorder, node_state("w1"), inventory_changed(None, now))


async def _node_without_pool(recorder: EventRecorder, _folder: Path) -> None:
    node = node_with(pool())
    record_node(recorder, node.state, node.plan().pools)


# Pools


async def _pool_capacity_low(recorder: EventRecorder, _folder: Path) -> None:
    waiting = situation(pod_for(TRAINING), {"w1": (8, 8, 0)})
    found = explain_pod(waiting)
    assert found is not None
    record_pending(recorder, waiting.pod, found)


async def _reservation_expired(recorder: EventRecorder, _folder: Path) -> None:
    record_expired(recorder, POOL, pod_for())


async def _pool_misconfigured(recorder: EventRecorder, _folder: Path) -> None:
    fault = PoolFault(Reason.NAME_COLLISION, "an older pool has the same resource name")
    status = pool_status(POOL, PoolCapacity(), fault, None, NOON)
    assert status.phase is PoolPhase.MISCONFIGURED
    record_pool(recorder, POOL, status)


async def _pool_maintenance(recorder: EventRecorder, _folder: Path) -> None:
    """A pod holds a whole card of a pool that is to be divided anew, for longer than the deadline."""
    made = holding()
    divide_anew(made, INSTANCES)
    known = made.pools["a"]
    late = NOON + timedelta(days=400)
    record_pool(recorder, known, pool_status(known, made.capacity(known), None, None, late))


# Ray


def _ray[T: Object](find: Callable[[WaitingLookup, T], Iterable[Overdue]], item: T) -> Raise:
    """It has waited since before noon for workers that have no card, and is looked at every minute."""

    async def raised(recorder: EventRecorder, _folder: Path) -> None:
        held = ray.lookup(ray.cluster(), ray.worker(message="0/1 nodes are available"), item)
        recorded: dict[str, datetime] = {}
        for minute in range(30):
            recorded = record_overdue(recorder, item, find(held, item), recorded, NOON - timedelta(minutes=30 - minute))
        assert recorded

    return raised


# The software stack


def _stack(**fields: Any) -> Raise:
    async def raised(recorder: EventRecorder, _folder: Path) -> None:
        policy = StoredClusterPolicy(metadata=ObjectMeta(name="cluster-policy"))
        record_status_change(recorder, policy, status_with(), status_with(**fields))

    return raised


class _AcceptingClient:
    """Takes every patch."""

    metrics = Metrics()

    async def patch(self, _kind: type, _name: str, _body: object, **_options: object) -> None:
        return None


class _RefusingEvictor(Evictor):
    async def evict(self, node: str, pod: Pod) -> Refusal | None:
        return Refusal(until=UPGRADE_NOON, why=f"a disruption budget keeps {pod.name} on {node}")


def _upgrades(recorder: EventRecorder) -> ActionExecutor:
    client = cast("Client", _AcceptingClient())
    return ActionExecutor(client, recorder, _RefusingEvictor(client, lambda: UPGRADE_NOON), NAMESPACE)


async def _upgrade_failed(recorder: EventRecorder, _folder: Path) -> None:
    view = cordoned(UpgradeState.POD_RESTART_REQUIRED, CRASHING, annotations=ago(NodeAnnotation.STEP_SINCE, 9))
    action = step(view, POLICY, UPGRADE_NOON)
    assert isinstance(action, NodePatch)
    assert action.state is UpgradeState.FAILED
    await _upgrades(recorder).patch(Node(metadata=ObjectMeta(name="worker")), view, action)


async def _upgrade_stuck(recorder: EventRecorder, _folder: Path) -> None:
    view = cordoned(UpgradeState.WAIT_FOR_JOBS_REQUIRED)
    action = step(view, POLICY, UPGRADE_NOON)
    assert isinstance(action, NodePatch)
    node = Node(metadata=ObjectMeta(name="worker"))
    await _upgrades(recorder).patch(node, view, action)
    await _upgrades(recorder).evict(node, EvictPods(note="1 pod has to go", pods=(gpu_pod(),)))


# Our own processes


class _DeniedClient:
    """The API server answers, and refuses."""

    metrics = Metrics()

    async def create(self, *_arguments: object) -> None:
        raise _DENIED

    async def patch(self, *_arguments: object, **_options: object) -> None:
        raise _DENIED


class _LeaseClient(_AcceptingClient):
    async def patch(self, _kind: type, _name: str, _body: object, **_options: object) -> Lease:  # type: ignore[override]
        return Lease(metadata=ObjectMeta(name=LEASE, namespace=NAMESPACE))


def _leadership(client: object, recorder: EventRecorder, clock: Callable[[], float]) -> Leadership:
    return Leadership(
        cast("Client", client),
        name=LEASE,
        namespace=NAMESPACE,
        identity="one",
        timing=Timing(),
        clock=clock,
        now=lambda: NOON,
        events=recorder,
    )


async def _leader_absent(recorder: EventRecorder, _folder: Path) -> None:
    renewed = micro_time(NOON - timedelta(minutes=12))
    held = Lease(metadata=ObjectMeta(name=LEASE, namespace=NAMESPACE), spec=LeaseSpec("dead", 15, 1, renewed))
    await _leadership(_LeaseClient(), recorder, lambda: 0.0).acquire(held)


async def _not_leading(recorder: EventRecorder, folder: Path) -> None:
    moments = iter(range(1000))
    refused = _leadership(_DeniedClient(), recorder, lambda: float(next(moments)))
    for _ in range(20):
        assert not await refused.acquire(None)
    await _leader_absent(recorder, folder)


def _runtime(recorder: EventRecorder) -> Runtime:
    made = Runtime(
        LEASE,
        config=Config("http://127.0.0.1:1", cast("Any", None)),
        namespace=NAMESPACE,
        status_port=None,
        identity="one",
    )
    made.events = recorder
    return made


async def _replicas_missing(recorder: EventRecorder, _folder: Path) -> None:
    now = NOON
    deployments = ScriptedCache(Deployment)
    replicas = Replicas(deployments.cache, recorder, lambda: now)
    made = {"metadata": {"name": CONTROLLER, "namespace": NAMESPACE}, "spec": {"replicas": 3}}
    async with delivering(deployments):
        await deployments.deliver(msgspec.convert({**made, "status": {"availableReplicas": 2}}, Deployment))
        for _ in range(4):
            await replicas.reconcile(Key(CONTROLLER, NAMESPACE))
            now += timedelta(minutes=8)


async def _reconciles_fail(recorder: EventRecorder, _folder: Path) -> None:
    failures = 0

    async def fail(_key: Key) -> None:
        nonlocal failures
        failures += 1
        raise _DENIED

    nodes = ScriptedCache(Node)
    quickly = Backoff(first=0.001, most=0.001)
    controller = Controller("inventory", fail, backoff=quickly, tell=_runtime(recorder).tell_failure)
    controller.watch(nodes.cache)
    async with delivering(nodes):
        await nodes.deliver(Node(metadata=ObjectMeta(name="w1")))
        working = asyncio.create_task(controller.run())
        await until(lambda: failures > 2 * PERSISTENT_FAILURES, saying="many failures")
        working.cancel()
        await asyncio.wait((working,))


async def _certificate_expires(recorder: EventRecorder, _folder: Path) -> None:
    failures = 0

    class Refusing(_DeniedClient):
        async def get(self, *_arguments: object) -> None:
            nonlocal failures
            failures += 1
            certificates.wake()
            await asyncio.sleep(0)
            raise _DENIED

    certificates = ServingCertificates(
        cast("Client", Refusing()),
        Key("gpu-control-plane-webhook", NAMESPACE),
        Subject("webhook", ("webhook.svc",)),
        cast("Any", None),
        events=recorder,
        now=lambda: NOON,
    )
    following = asyncio.create_task(certificates.run())
    await until(lambda: failures > 2 * PERSISTENT_FAILURES, saying="many failures")
    following.cancel()
    await asyncio.wait((following,))


RAISED: Final[Mapping[str, Raise]] = {
    "GPUCardFaulted": _card(_xid(79)),
    "GPUBurnInFailed": _burn_in_failed,
    "GPUHardwareXID": _card(_xid(999)),
    "GPUApplicationXID": _card(_xid(31)),
    "GPUCardHeatingUp": _heating_up,
    "GPUCardThrottledByHeat": _card(overheat),
    "GPUMemoryErrorsRising": _memory_errors_rising,
    "GPUMemoryRowsRemapped": _card(lambda machine, address: wear_out(machine, address, failed=False)),
    "GPUMemoryUncorrected": _card(break_memory, _contained),
    "GPURowRemapFailed": _card(lambda machine, address: wear_out(machine, address, failed=True)),
    "GPUDriverMissing": _software(
        "no driver", "driver there, broken", "validator pod stuck at driver", fails_check=True
    ),
    "GPUToolkitMissing": _software("driver fine, no toolkit", "driver fine, toolkit broken", fails_check=True),
    "GPUMonitoringMissing": _software("no exporter", "exporter pod broken"),
    "GPUNodeDegraded": _software(
        *("two agents for long", "no agent for long", "driver hangs", "driver released for an upgrade"),
        "agent and exporter",
    ),
    "GPUNodeNotReady": _software("kernel failed on a card", fails_check=True),
    "GPUInventoryIncomplete": _inventory_incomplete,
    "GPUNodeWithoutPool": _node_without_pool,
    "GPUPoolCapacityLow": _pool_capacity_low,
    "GPUPoolMaintenance": _pool_maintenance,
    "GPUPoolMisconfigured": _pool_misconfigured,
    "GPUReservationExpired": _reservation_expired,
    "GPURayWorkersWait": _ray(overdue.of_cluster, ray.cluster()),
    "GPURayJobWaits": _ray(overdue.of_job, ray.job(jobDeploymentStatus="Initializing", rayClusterName="eval")),
    "GPURayServiceNotReady": _ray(overdue.of_service, ray.service(pendingServiceStatus={"rayClusterName": "eval"})),
    "GPUStackFailed": _stack(problem="driver.image: no"),
    "GPUOperandNotReady": _stack(readiness={"state-driver": (BROKEN,), "state-dcgm": (GOOD,)}),
    "GPUOperandMissingOnManyNodes": _stack(readiness={"state-driver": (BROKEN,), "state-dcgm": (BROKEN,)}),
    "GPUDriverUpgradeFailed": _upgrade_failed,
    "GPUDriverUpgradeStuck": _upgrade_stuck,
    "GPUNodesUnlabelled": _stack(unlabelled=["gpu-9"]),
    "GPUHostDriverProblem": _stack(host_problems={"gpu-3": "too old"}),
    "GPUControllerDown": _leader_absent,
    "GPUControllerNotLeading": _not_leading,
    "GPUControllerReplicasMissing": _replicas_missing,
    "GPUReconcilesFail": _reconciles_fail,
    "GPUWebhookCertificateExpires": _certificate_expires,
    "GPUAgentDown": _software("agent crashes"),
    "GPUAgentPodsMissing": _software("no agent for long"),
}
