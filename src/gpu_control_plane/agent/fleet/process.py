"""The agents of all simulated nodes in one process: shared caches, two controllers, each keyed by the node's name.

Nothing polls. A node is looked at when something about it changes, and written to only where something differs, so a
fleet at rest sends nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from gpu_control_plane.agent.fleet.agent import BY_NODE, SimulatedNodeAgent, Views
from gpu_control_plane.agent.metrics import FleetMetrics
from gpu_control_plane.agent.publish import Publisher
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import SIMULATED, SIMULATED_VALUE, Machine, read_machine
from gpu_control_plane.agent.status_writer import StatusWriter
from gpu_control_plane.agent.step import RECOVERY, RecoveryPolicy
from gpu_control_plane.agent.views import MANAGER, DeviceView, NodeStateView, NodeView, PodView, is_relevant
from gpu_control_plane.api.nodefeature import NODE_LABEL, NodeFeature
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.times import utc_now

NAME: Final = "gpu-agent-fleet"

_LIVING_PODS: Final = Selection(fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
_WORKERS: Final = 16


def build(runtime: Runtime, namespace: str, *, recovery: RecoveryPolicy = RECOVERY) -> None:
    """Declare the fleet's caches and controllers. Reports are published in `namespace`."""
    nodes, pods = runtime.cache(NodeView), runtime.cache(PodView, _LIVING_PODS)
    states, devices = runtime.cache(NodeStateView), runtime.cache(DeviceView)
    features = runtime.cache(NodeFeature, Selection(namespace=namespace))
    pods.index(BY_NODE, lambda pod: (pod.spec.node_name,))
    devices.index(BY_NODE, lambda device: (device.spec.node_name,))

    metrics = FleetMetrics(runtime.metrics.registry)
    applier = runtime.applier(MANAGER)
    status = StatusWriter(applier, runtime.events, metrics, utc_now)
    agent = SimulatedNodeAgent(
        Views(nodes, states, devices, pods),
        runtime.client,
        status,
        metrics,
        recovery=recovery,
        now=utc_now,
        monotonic=_monotonic,
    )
    runtime.on_lead(agent.forget_all)
    publisher = Publisher(features, applier, metrics, namespace)

    async def reconcile(node: NodeView, machine: Machine | None) -> float | None:
        if machine is None:
            await agent.admit_freely(node.name)
            return None
        return await agent.reconcile(node, machine)

    async def publish(node: NodeView, machine: Machine | None) -> float | None:
        if machine is not None:
            await publisher.publish(node, SimulatedBackend(node.name, machine))
        return None

    serving = runtime.controller("simulated-nodes", _each(nodes, reconcile, agent.forget), workers=_WORKERS)
    serving.watch(nodes, when=is_relevant).watch(states, when=is_relevant)
    serving.watch(devices, lambda device: (Key(device.spec.node_name),), when=is_relevant)
    serving.watch(pods, lambda pod: (Key(pod.spec.node_name),), when=is_relevant)
    publishing = runtime.controller("publications", _each(nodes, publish), workers=_WORKERS)
    publishing.watch(nodes, when=is_relevant).watch(features, _published_for)


def _each(
    nodes: Cache[NodeView],
    work: Callable[[NodeView, Machine | None], Awaitable[float | None]],
    forget: Callable[[str], None] = lambda _node: None,
) -> Callable[[Key], Awaitable[Requeue | None]]:
    """A reconcile that does `work` on simulated nodes, as late as a slow node would."""
    slowness = _Slowness(_monotonic)

    async def reconcile(key: Key) -> Requeue | None:
        node = nodes.get(key.name)
        if node is None or node.deleting:
            forget(key.name)
            return None
        if node.metadata.annotations.get(SIMULATED) != SIMULATED_VALUE:
            return None
        machine = read_machine(node.name, node.metadata.annotations)
        if machine is not None and (pause := slowness.pause(node.name, machine.slow_seconds)):
            return Requeue(pause)
        again = await work(node, machine)
        return None if again is None else Requeue(again)

    return reconcile


class _Slowness:
    """When a node that is slow may react to what woke it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._due: dict[str, float] = {}

    def pause(self, node: str, seconds: float) -> float:
        """How long the node has to wait yet; 0 when its time has come, and the next waking starts anew."""
        now = self._monotonic()
        due = self._due.setdefault(node, now + seconds)
        if seconds and now < min(due, now + seconds):
            return min(due, now + seconds) - now
        del self._due[node]
        return 0.0


def _published_for(feature: NodeFeature) -> Iterable[Key]:
    node = feature.metadata.labels.get(NODE_LABEL)
    return (Key(node),) if node else ()


def _monotonic() -> float:
    return asyncio.get_running_loop().time()
