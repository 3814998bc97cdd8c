"""Nodes with drivers on a real API server. The test acts as DaemonSet controller, kubelets and agent."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Client, Config, Object, Resource, Runtime, Selection, Signal
from gpu_control_plane.kube.errors import Conflict, NotFound
from gpu_control_plane.operator.driver_secrets import DriverSecrets
from gpu_control_plane.operator.upgrade.actions import PAUSED
from gpu_control_plane.operator.upgrade.controller import UpgradeController, UpgradeTiming
from gpu_control_plane.operator.upgrade.groups import UpgradeGroup
from gpu_control_plane.operator.views import REVISION_HASH, ControllerRevision, DaemonSet

DRIVER = {"app": "nvidia-driver-daemonset"}
LEASE = "test-upgrades"
VALIDATOR = {"app": "nvidia-operator-validator"}
CONTAINER = {"name": "main", "image": "example.com/image:1"}
RUNNING = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [
        {"name": "main", "image": "i", "imageID": "i", "ready": True, "restartCount": 0, "state": {"running": {}}}
    ],
}


class Budget(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")


class FakePolicies(msgspec.Struct):
    """The upgrade groups of a test."""

    groups: tuple[UpgradeGroup, ...] = ()
    writing: bool = True
    changed: Signal = msgspec.field(default_factory=lambda: Signal("policies"))

    def upgrade_groups(self) -> Sequence[UpgradeGroup]:
        return self.groups

    def may_write(self) -> bool:
        return self.writing


class UpgradeEnv:
    """The cluster of one test. Its nodes have names unlike any other test's."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.revision = 0
        self.nodes: list[str] = []
        self.agents: set[str] = set()
        """Nodes with our agent, and without NVIDIA's validator."""
        self.stuck: set[str] = set()
        """Nodes on which no new driver pod becomes ready."""
        self.policies = FakePolicies()
        self._daemonset: DaemonSet | None = None

    # What a test sets up.

    async def publish_driver(self) -> None:
        """The DaemonSet gets another template, and a revision for it."""
        self.revision += 1
        container = {**CONTAINER, "env": [{"name": "REVISION", "value": str(self.revision)}]}
        template = {"metadata": {"labels": DRIVER}, "spec": {"containers": [container]}}
        spec = {
            "selector": {"matchLabels": DRIVER},
            "template": template,
            "updateStrategy": {"type": "OnDelete"},
        }
        if self._daemonset is None:
            body = {"metadata": {"name": "driver", "labels": DRIVER}, "spec": spec}
            self._daemonset = await self.client.create(DaemonSet, body, self.namespace)
        else:
            await self.client.patch(DaemonSet, "driver", {"spec": {"template": template}}, namespace=self.namespace)
        revision = {
            "metadata": {
                "name": f"driver-{self.revision}",
                "labels": {**DRIVER, REVISION_HASH: str(self.revision)},
                "ownerReferences": [self._owner()],
            },
            "revision": self.revision,
            "data": {},
        }
        await self.client.create(ControllerRevision, revision, self.namespace)

    async def add_node(self, name: str, labels: Mapping[str, str] | None = None, *, cordoned: bool = False) -> str:
        name = f"{self.namespace}-{name}"
        body = {
            "metadata": {"name": name, "labels": {str(key): value for key, value in (labels or {}).items()}},
            "spec": {"unschedulable": cordoned},
        }
        await self.client.create(Node, body)
        await self.client.patch(Node, name, {"status": {"conditions": [_ready()]}}, subresource="status")
        self.nodes.append(name)
        return name

    async def add_agent(self, node: str) -> None:
        self.agents.add(node)
        await self.client.create(GPUNodeState, {"metadata": {"name": node}, "spec": {}})
        await self._report(node)

    async def add_workload(
        self, node: str, name: str, labels: Mapping[str, str] | None = None, *, gpu: bool = True
    ) -> Pod:
        limits = {"limits": {"nvidia.com/gpu": "1"}} if gpu else {}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
        return await self._add_pod(f"{name}-{node}", node, dict(labels or {}), [owner], resources=limits)

    async def refuse_evictions(self, labels: Mapping[str, str]) -> None:
        """A budget that allows no disruption; no controller sets its status here."""
        spec = {"minAvailable": 1, "selector": {"matchLabels": dict(labels)}}
        await self.client.create(Budget, {"metadata": {"name": "guard"}, "spec": spec}, self.namespace)
        await self.allow_disruptions(0)

    async def allow_disruptions(self, count: int) -> None:
        numbers = {"currentHealthy": 1 + count, "desiredHealthy": 1, "disruptionsAllowed": count, "expectedPods": 1}
        status = {"status": {"observedGeneration": 1, **numbers}}
        await self.client.patch(Budget, "guard", status, namespace=self.namespace, subresource="status")

    def govern(self, policy: UpgradePolicy | None, name: str = "") -> None:
        self.policies.groups = (UpgradeGroup(name, policy, frozenset(self.nodes)),)

    # What a test looks at.

    async def states(self) -> dict[str, UpgradeState]:
        held = {node.name: node for node in await self.client.list(Node)}
        return {name: state_of(held[name]) for name in self.nodes}

    async def all_in(self, *states: UpgradeState) -> bool:
        return set((await self.states()).values()) <= set(states)

    async def node(self, name: str) -> Node:
        return await self.client.get(Node, name)

    async def pods(self) -> dict[str, Pod]:
        return {pod.name: pod for pod in await self.client.list(Pod, Selection(self.namespace))}

    @asynccontextmanager
    async def operator(
        self, config: Config, *, orderly: bool = True, elect: bool = False, timing: UpgradeTiming | None = None
    ) -> AsyncIterator[tuple[Runtime, UpgradeController]]:
        """Run the operator. Without `orderly` it ends as in a crash. With `elect` it works while it holds the lease
        `LEASE` of the namespace."""
        runtime = Runtime(LEASE, config=config, namespace=self.namespace, elect=elect, status_port=None)
        secrets = DriverSecrets(runtime.client, self.namespace, interval=0.5)
        upgrades = UpgradeController(runtime, self.namespace, self.policies, secrets, timing)
        task = asyncio.create_task(runtime.run())
        try:
            yield runtime, upgrades
        finally:
            if orderly:
                runtime.stop()
            else:
                task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled():
                assert task.exception() is None

    # What DaemonSet controller, kubelets and agents do.

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """Act as DaemonSet controller, kubelets and agents meanwhile."""
        task = asyncio.create_task(self._live())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.result()

    async def _live(self) -> None:
        while True:
            await self.live_once()
            await asyncio.sleep(0.05)

    async def live_once(self) -> None:
        pods = list((await self.pods()).values())
        for pod in pods:
            if pod.deleting:
                await self._kill(pod)
            elif not pod.containers_ready and pod.spec.node_name not in self.stuck:
                await self._set_running(pod)
        for kind, labels in (("driver", DRIVER), ("validator", VALIDATOR)):
            there = {pod.spec.node_name for pod in pods if labels.items() <= pod.metadata.labels.items()}
            for node in self.nodes:
                if node not in there and not (kind == "validator" and node in self.agents):
                    await self._add_operand(kind, node, labels)
        for name in self.agents:
            await self._agent_looks(name)

    async def _add_operand(self, kind: str, node: str, labels: Mapping[str, str]) -> None:
        extra = {REVISION_HASH: str(self.revision)} if kind == "driver" else {}
        await self._add_pod(f"{kind}-{node}", node, {**labels, **extra}, [self._owner()])

    async def _add_pod(
        self, name: str, node: str, labels: Mapping[str, str], owners: Iterable[Mapping[str, Any]], **container: Any
    ) -> Pod:
        body = {
            "metadata": {"name": name, "labels": dict(labels), "ownerReferences": list(owners)},
            "spec": {
                "nodeName": node,
                "containers": [{**CONTAINER, **container}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        return await self.client.create(Pod, body, self.namespace)

    async def _set_running(self, pod: Pod) -> None:
        with suppress(NotFound):
            body = {"status": RUNNING}
            await self.client.patch(Pod, pod.name, body, namespace=self.namespace, subresource="status")

    async def _kill(self, pod: Pod) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        with suppress(NotFound):
            await self.client._write("DELETE", "delete", Pod, options, name=pod.name, namespace=self.namespace)

    async def _agent_looks(self, name: str) -> None:
        node, state = await self.node(name), await self.client.get(GPUNodeState, name)
        paused = node.metadata.labels.get(NodeLabel.AGENT) == PAUSED
        if paused != (state.status.quiesced is not None):
            quiesced = {"since": _now(), "reason": PAUSED} if paused else None
            body = {"status": {"quiesced": quiesced}}
            with suppress(Conflict):
                await self.client.patch(GPUNodeState, name, body, subresource="status")
            if not paused:
                await self._report(name)

    async def _report(self, node: str) -> None:
        steps = [{"name": name, "result": "Passed", "at": _now()} for name in ("driver", "cuda")]
        validation = {"driverVersion": "580.1", "steps": steps}
        await self.client.patch(GPUNodeState, node, {"status": {"validation": validation}}, subresource="status")

    def _owner(self) -> dict[str, Any]:
        assert self._daemonset is not None
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": "driver",
            "uid": self._daemonset.metadata.uid,
            "controller": True,
        }


def state_of(node: Node) -> UpgradeState:
    return UpgradeState(node.metadata.labels.get(NodeLabel.UPGRADE_STATE, ""))


def writes(runtime: Runtime) -> Callable[[], float]:
    """How many writes the operator has made so far, Events left out."""
    verbs = {"create", "patch", "delete", "apply"}
    return lambda: sum(
        value
        for labels, value in _samples(runtime, "kube_api_requests_total")
        if labels["verb"] in verbs and not labels["resource"].startswith("events")
    )


def reconciles(runtime: Runtime) -> Callable[[], float]:
    """How often the scheduler has run so far."""
    return lambda: sum(
        value
        for labels, value in _samples(runtime, "kube_reconciles_total")
        if labels["controller"] == "upgrade-scheduler"
    )


def _samples(runtime: Runtime, name: str) -> list[tuple[Mapping[str, str], float]]:
    samples = (sample for metric in runtime.metrics.registry.collect() for sample in metric.samples)
    return [(sample.labels, sample.value) for sample in samples if sample.name == name]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ready() -> dict[str, str]:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastHeartbeatTime": _now(),
        "lastTransitionTime": _now(),
    }
