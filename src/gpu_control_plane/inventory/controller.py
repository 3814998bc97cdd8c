"""Inventory as a controller, keyed by node: what wakes it, what it reads, and that it executes what was decided.

It reads the agents' NodeFeatures, other sources about the PCI bus, Nodes, and the GPUApprovals that people wrote before
their cards were there. It writes GPUDevices and GPUNodeStates, and watches them so that changes by others are repaired.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.gpuapproval import GPUApproval
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NodeFeature, discovery_name, feature_name
from gpu_control_plane.api.pod import AGENT, BY_NODE, Pod, node_of
from gpu_control_plane.inventory import node_label
from gpu_control_plane.inventory.context import BY_UUID, NodeContext, uuid_index
from gpu_control_plane.inventory.decide import decide
from gpu_control_plane.inventory.execute import PlanExecutor
from gpu_control_plane.inventory.metrics import CARDS, InventoryMetrics
from gpu_control_plane.inventory.nfd import NFDInventory
from gpu_control_plane.inventory.node_status import owned_fields
from gpu_control_plane.inventory.report import Report, Unreadable, read_report
from gpu_control_plane.inventory.snapshot import Settings, Snapshot
from gpu_control_plane.kube import Key, Requeue, Runtime, Selection
from gpu_control_plane.kube.errors import Invalid
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.rules.managed_nodes import ManagedNodes, has_gpu_label

_PREFIXES: Final = (feature_name(""), discovery_name(""))
_DEFAULTS: Final = Settings()


def build(runtime: Runtime, settings: Settings = _DEFAULTS, *, now: Callable[[], datetime] = utc_now) -> None:
    """Add inventory to a process."""
    features = runtime.cache(NodeFeature, Selection(namespace=settings.namespace))
    nodes = runtime.cache(Node)
    devices = runtime.cache(GPUDevice)
    states = runtime.cache(GPUNodeState)
    approvals = runtime.cache(GPUApproval)
    pods = runtime.cache(Pod, Selection(namespace=settings.namespace))
    pods.index(BY_NODE, node_of)
    devices.index(BY_NODE, lambda device: (device.spec.node_name,))
    devices.index(BY_UUID, uuid_index)
    approvals.index(BY_NODE, lambda approval: (approval.spec.node_name,))
    metrics = InventoryMetrics(runtime.metrics.registry)
    metrics.follow(devices, states)
    executor = PlanExecutor(runtime.client, runtime.events, metrics, writes_at_once=settings.writes_at_once)
    disagreements: dict[str, datetime] = {}
    runtime.on_lead(disagreements.clear)

    def take_snapshot(node: str) -> Snapshot:
        feature = features.get(feature_name(node), settings.namespace)
        found = nodes.get(node)
        report = read_report(node, feature) if feature is not None else None
        known = tuple(devices.by_index(BY_NODE, node))
        return Snapshot(
            node=node,
            node_exists=found is not None,
            node_ready=found is not None and found.ready,
            agent_expected=found is not None and _expects_agent(found, settings.managed),
            agent_pod_since=context.agent_pod_since(node),
            feature=feature,
            report=report,
            bus_sources=context.bus_sources(node),
            duplicates=context.duplicates(node, known, report),
            disagreement_since=disagreements.get(node),
            devices=known,
            approvals=tuple(approvals.by_index(BY_NODE, node)),
            state=states.get(node),
            now=now(),
        )

    async def reconcile(key: Key) -> Requeue | None:
        await nfd.ready()
        snapshot = take_snapshot(key.name)
        plan = decide(snapshot, settings)
        with metrics.handling(CARDS):
            try:
                await executor.execute(plan)
            except Invalid as refused:
                if not isinstance(snapshot.report, Report):
                    raise
                # The API refused values that came from the report: that is what the condition says.
                unreadable = Unreadable(str(refused))
                snapshot = msgspec.structs.replace(take_snapshot(key.name), feature=snapshot.feature, report=unreadable)
                plan = decide(snapshot, settings)
                await executor.execute(plan)
        if plan.bus_disagrees:
            disagreements.setdefault(key.name, snapshot.now)
        else:
            disagreements.pop(key.name, None)
        return Requeue(after=plan.again_in.total_seconds()) if plan.again_in is not None else None

    controller = runtime.controller("inventory", reconcile)
    nfd = NFDInventory(runtime, settings.nfd_namespaces, controller.enqueue, sync_timeout=settings.nfd_sync_timeout)
    context = NodeContext(features, nodes, devices, pods, nfd, namespace=settings.namespace)
    controller.watch(features, _node_of_feature, _feature_changed)
    controller.watch(nodes, context.nodes_with_its_cards, _node_changed(settings.managed))
    controller.watch(devices, context.nodes_of_card, _device_changed)
    controller.watch(states, when=_state_changed)
    controller.watch(approvals, lambda approval: (Key(approval.spec.node_name),), _approval_changed)
    controller.watch(pods, _node_of_agent, _agent_changed)
    node_label.build(runtime, metrics, settings.namespace)


def _node_of_feature(feature: NodeFeature) -> Iterable[Key]:
    """The node that a NodeFeature of our agent or discovery is about; none for those of other programs."""
    return tuple(Key(feature.name.removeprefix(prefix)) for prefix in _PREFIXES if feature.name.startswith(prefix))


def _feature_changed(old: NodeFeature | None, new: NodeFeature | None) -> bool:
    if old is None or new is None:
        return True
    return old.spec != new.spec or old.metadata.labels != new.metadata.labels


def _node_changed(managed: ManagedNodes) -> Callable[[Node | None, Node | None], bool]:
    """A Node's status changes all the time; whether it exists, is ready and should have an agent changes rarely."""

    def parts(node: Node) -> tuple[str, bool, bool]:
        return node.metadata.uid, node.ready, _expects_agent(node, managed)

    return lambda old, new: old is None or new is None or parts(old) != parts(new)


def _expects_agent(node: Node, managed: ManagedNodes) -> bool:
    labels = node.metadata.labels
    return managed.include(labels) and has_gpu_label(labels)


def _node_of_agent(pod: Pod) -> Iterable[Key]:
    return (Key(pod.spec.node_name),) if pod.component == AGENT and pod.spec.node_name else ()


def _agent_changed(old: Pod | None, new: Pod | None) -> bool:
    """That it is on a node; whether it works is bootstrap's question."""
    return old is None or new is None or old.spec.node_name != new.spec.node_name


def _device_changed(old: GPUDevice | None, new: GPUDevice | None) -> bool:
    if old is None or new is None:
        return True
    return old.status.hardware != new.status.hardware or old.metadata.labels != new.metadata.labels


def _approval_changed(old: GPUApproval | None, new: GPUApproval | None) -> bool:
    """One that is gone asks for nothing."""
    return new is not None and (old is None or old.spec != new.spec)


def _state_changed(old: GPUNodeState | None, new: GPUNodeState | None) -> bool:
    return old is None or new is None or owned_fields(old.status) != owned_fields(new.status)
