"""Inventory as a controller: what wakes it, what it looks at, and that it does what was decided.

Keyed by node. The agents' NodeFeatures, what others see on the PCI bus, and the Nodes come in; GPUDevices and
GPUNodeStates go out, and are watched so that what somebody else does to them is repaired.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.names import GPU_LABELS
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NAMESPACE, NodeFeature, discovery_name, feature_name
from gpu_control_plane.api.pod import AGENT, BY_NODE, Pod, node_of
from gpu_control_plane.inventory import gate
from gpu_control_plane.inventory.act import Actor
from gpu_control_plane.inventory.decide import decide
from gpu_control_plane.inventory.metrics import CARDS, InventoryMetrics
from gpu_control_plane.inventory.nfd import SecondOpinion
from gpu_control_plane.inventory.node_status import own_share
from gpu_control_plane.inventory.report import Report, Unreadable, read_report
from gpu_control_plane.inventory.snapshot import Settings, Snapshot
from gpu_control_plane.inventory.surroundings import BY_UUID, Surroundings, uuids
from gpu_control_plane.kube import Key, Requeue, Runtime, Selection
from gpu_control_plane.kube.errors import Invalid
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.rules.managed_nodes import ManagedNodes

_PREFIXES: Final = (feature_name(""), discovery_name(""))
_DEFAULTS: Final = Settings()


def build(runtime: Runtime, settings: Settings = _DEFAULTS, *, now: Callable[[], datetime] = utc_now) -> None:
    """Add inventory to a process."""
    features = runtime.cache(NodeFeature, Selection(namespace=NAMESPACE))
    nodes = runtime.cache(Node)
    devices = runtime.cache(GPUDevice)
    states = runtime.cache(GPUNodeState)
    pods = runtime.cache(Pod, Selection(namespace=NAMESPACE))
    pods.index(BY_NODE, node_of)
    devices.index(BY_NODE, lambda device: (device.spec.node_name,))
    devices.index(BY_UUID, uuids)
    metrics = InventoryMetrics(runtime.metrics.registry)
    metrics.follow(devices, states)
    actor = Actor(runtime.client, runtime.events, metrics, writes_at_once=settings.writes_at_once)
    doubts: dict[str, datetime] = {}
    runtime.on_lead(doubts.clear)

    def look(node: str) -> Snapshot:
        feature = features.get(feature_name(node), NAMESPACE)
        found = nodes.get(node)
        report = read_report(node, feature) if feature is not None else None
        known = tuple(devices.by_index(BY_NODE, node))
        return Snapshot(
            node=node,
            node_exists=found is not None,
            node_ready=found is not None and found.ready,
            labelled=found is not None and _is_labelled(found, settings.managed),
            agent_since=around.agent_since(node),
            feature=feature,
            report=report,
            witnesses=around.witnesses(node),
            elsewhere=around.elsewhere(node, known, report),
            doubted_since=doubts.get(node),
            devices=known,
            state=states.get(node),
            now=now(),
        )

    async def reconcile(key: Key) -> Requeue | None:
        await opinion.ready()
        seen = look(key.name)
        plan = decide(seen, settings)
        with metrics.handling(CARDS):
            try:
                await actor.carry_out(plan)
            except Invalid as refused:
                if not isinstance(seen.report, Report):
                    raise
                # Values that the API does not allow came from the report: that is what the node is told.
                seen = msgspec.structs.replace(look(key.name), report=Unreadable(str(refused)))
                plan = decide(seen, settings)
                await actor.carry_out(plan)
        if plan.doubt:
            doubts.setdefault(key.name, seen.now)
        else:
            doubts.pop(key.name, None)
        return Requeue(after=plan.again_in.total_seconds()) if plan.again_in is not None else None

    controller = runtime.controller("inventory", reconcile)
    opinion = SecondOpinion(runtime, settings.nfd_namespaces, controller.enqueue)
    around = Surroundings(features, nodes, devices, pods, opinion)
    controller.watch(features, _node_of_feature, _feature_matters)
    controller.watch(nodes, around.rivals, _node_matters(settings.managed))
    controller.watch(devices, around.concerned, _device_matters)
    controller.watch(states, when=_state_matters)
    controller.watch(pods, _node_of_agent, _agent_matters)
    gate.build(runtime, metrics)


def _node_of_feature(feature: NodeFeature) -> Iterable[Key]:
    """The node that this is about; nobody's where the name is not of our making."""
    return tuple(Key(feature.name.removeprefix(prefix)) for prefix in _PREFIXES if feature.name.startswith(prefix))


def _feature_matters(old: NodeFeature | None, new: NodeFeature | None) -> bool:
    if old is None or new is None:
        return True
    return old.spec != new.spec or old.metadata.labels != new.metadata.labels


def _node_matters(managed: ManagedNodes) -> Callable[[Node | None, Node | None], bool]:
    """Nodes report all the time; whether they exist, answer and have cards changes rarely."""

    def seen_of(node: Node) -> tuple[str, bool, bool]:
        return node.metadata.uid, node.ready, _is_labelled(node, managed)

    return lambda old, new: old is None or new is None or seen_of(old) != seen_of(new)


def _is_labelled(node: Node, managed: ManagedNodes) -> bool:
    labels = node.metadata.labels
    return managed.include(labels) and any(labels.get(label) == "true" for label in GPU_LABELS)


def _node_of_agent(pod: Pod) -> Iterable[Key]:
    return (Key(pod.spec.node_name),) if pod.component == AGENT and pod.spec.node_name else ()


def _agent_matters(old: Pod | None, new: Pod | None) -> bool:
    """That it is on a node; whether it works is bootstrap's question."""
    return old is None or new is None or old.spec.node_name != new.spec.node_name


def _device_matters(old: GPUDevice | None, new: GPUDevice | None) -> bool:
    if old is None or new is None:
        return True
    return old.status.hardware != new.status.hardware or old.metadata.labels != new.metadata.labels


def _state_matters(old: GPUNodeState | None, new: GPUNodeState | None) -> bool:
    return old is None or new is None or own_share(old.status) != own_share(new.status)
