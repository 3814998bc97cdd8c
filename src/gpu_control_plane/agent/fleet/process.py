"""The agents of all simulated nodes in one process: shared caches, two controllers, each keyed by the node's name.

Nothing polls. A node is looked at when something about it changes, and written to only where something differs, so a
fleet at rest sends nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from gpu_control_plane.agent.fleet.node import NodeAgent, Views
from gpu_control_plane.agent.fleet.slowness import Slowness
from gpu_control_plane.agent.metrics import AgentMetrics
from gpu_control_plane.agent.publish import Publisher
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import SIMULATED, SIMULATED_VALUE, Machine, read_machine
from gpu_control_plane.agent.views import MANAGER, Card, Node, Orders, Pod, matters
from gpu_control_plane.api.nodefeature import NAMESPACE, NODE_LABEL, NodeFeature
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.times import utc_now

NAME: Final = "gpu-agent-fleet"

_LIVING_PODS: Final = Selection(fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
_PUBLISHED: Final = Selection(namespace=NAMESPACE)
_WORKERS: Final = 16


def build(runtime: Runtime) -> None:
    """Declare the fleet's caches and controllers."""
    nodes, pods = runtime.cache(Node), runtime.cache(Pod, _LIVING_PODS)
    orders, cards = runtime.cache(Orders), runtime.cache(Card)
    features = runtime.cache(NodeFeature, _PUBLISHED)
    pods.index("node", lambda pod: (pod.spec.node_name,))
    cards.index("node", lambda card: (card.spec.node_name,))

    metrics = AgentMetrics(runtime.metrics.registry)
    views = Views(nodes, orders, cards, pods)
    agent = NodeAgent(views, runtime.client, metrics, now=utc_now, monotonic=_monotonic)
    publisher = Publisher(features, runtime.applier(MANAGER), metrics)

    async def serve(node: Node, machine: Machine | None) -> float | None:
        if machine is None:
            await agent.admit_freely(node.name)
            return None
        return await agent.serve(node, machine)

    async def publish(node: Node, machine: Machine | None) -> float | None:
        if machine is not None:
            await publisher.publish(node, SimulatedBackend(node.name, machine))
        return None

    serving = runtime.controller("simulated-nodes", _each(nodes, serve, agent.forget), workers=_WORKERS)
    serving.watch(nodes, when=matters).watch(orders, when=matters)
    serving.watch(cards, lambda card: (Key(card.spec.node_name),), when=matters)
    serving.watch(pods, lambda pod: (Key(pod.spec.node_name),), when=matters)
    publishing = runtime.controller("publications", _each(nodes, publish), workers=_WORKERS)
    publishing.watch(nodes, when=matters).watch(features, _published_for)


def _each(
    nodes: Cache[Node],
    work: Callable[[Node, Machine | None], Awaitable[float | None]],
    forget: Callable[[str], None] = lambda _node: None,
) -> Callable[[Key], Awaitable[Requeue | None]]:
    """A reconcile that does `work` on simulated nodes, as late as a slow node would."""
    slowness = Slowness(_monotonic)

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


def _published_for(feature: NodeFeature) -> Iterable[Key]:
    node = feature.metadata.labels.get(NODE_LABEL)
    return (Key(node),) if node else ()


def _monotonic() -> float:
    return asyncio.get_running_loop().time()
