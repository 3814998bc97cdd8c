"""Inventory as a controller: what wakes it, what it looks at, and that it does what was decided.

Keyed by node. The agents' NodeFeatures and the Nodes come in; GPUDevices and GPUNodeStates go out, and are watched
so that what somebody else does to them is repaired.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NAMESPACE, NodeFeature, feature_name
from gpu_control_plane.inventory import gate
from gpu_control_plane.inventory.act import Actor
from gpu_control_plane.inventory.decide import Settings, Snapshot, decide
from gpu_control_plane.inventory.echoes import Echoes
from gpu_control_plane.inventory.metrics import InventoryMetrics
from gpu_control_plane.inventory.node_status import own_share
from gpu_control_plane.inventory.report import Report, Unreadable, read_report
from gpu_control_plane.kube import Key, Requeue, Runtime, Selection
from gpu_control_plane.kube.errors import Invalid
from gpu_control_plane.kube.times import utc_now

_PREFIX: Final = feature_name("")
_BY_NODE: Final = "node"
_DEFAULTS: Final = Settings()


def build(runtime: Runtime, settings: Settings = _DEFAULTS, *, now: Callable[[], datetime] = utc_now) -> None:
    """Add inventory to a process."""
    features = runtime.cache(NodeFeature, Selection(namespace=NAMESPACE))
    nodes = runtime.cache(Node)
    devices = runtime.cache(GPUDevice)
    states = runtime.cache(GPUNodeState)
    devices.index(_BY_NODE, lambda device: (device.spec.node_name,))
    metrics = InventoryMetrics(runtime.metrics.registry)
    metrics.follow(devices, states)
    actor = Actor(
        runtime.client,
        runtime.events,
        metrics,
        features=Echoes(features),
        devices=Echoes(devices),
        states=Echoes(states),
        writes_at_once=settings.writes_at_once,
    )

    def look(node: str) -> Snapshot:
        feature = features.get(feature_name(node), NAMESPACE)
        return Snapshot(
            node=node,
            node_exists=nodes.get(node) is not None,
            feature=feature,
            report=read_report(node, feature) if feature is not None else None,
            devices=tuple(devices.under(_BY_NODE, node)),
            state=states.get(node),
            now=now(),
        )

    async def reconcile(key: Key) -> Requeue | None:
        seen = look(key.name)
        plan = decide(seen, settings)
        try:
            await actor.carry_out(plan)
        except Invalid as refused:
            if not isinstance(seen.report, Report):
                raise
            # Values that the API does not allow came from the report: that is what the node is told.
            seen = msgspec.structs.replace(look(key.name), report=Unreadable(str(refused)))
            plan = decide(seen, settings)
            await actor.carry_out(plan)
        return Requeue(after=plan.again_in.total_seconds()) if plan.again_in is not None else None

    controller = runtime.controller("inventory", reconcile)
    controller.watch(features, _node_of_feature, _feature_matters)
    controller.watch(nodes, when=_node_matters)
    controller.watch(devices, lambda device: (Key(device.spec.node_name),), _device_matters)
    controller.watch(states, when=_state_matters)
    gate.build(runtime)


def _node_of_feature(feature: NodeFeature) -> Iterable[Key]:
    """The node whose agent published this; nobody's where the name is not of our making."""
    return (Key(feature.name.removeprefix(_PREFIX)),) if feature.name.startswith(_PREFIX) else ()


def _feature_matters(old: NodeFeature | None, new: NodeFeature | None) -> bool:
    if old is None or new is None:
        return True
    return old.spec != new.spec or old.metadata.labels != new.metadata.labels


def _node_matters(old: Node | None, new: Node | None) -> bool:
    """Nodes report all the time; whether they exist changes rarely."""
    return old is None or new is None


def _device_matters(old: GPUDevice | None, new: GPUDevice | None) -> bool:
    if old is None or new is None:
        return True
    return old.status.hardware != new.status.hardware or old.metadata.labels != new.metadata.labels


def _state_matters(old: GPUNodeState | None, new: GPUNodeState | None) -> bool:
    return old is None or new is None or own_share(old.status) != own_share(new.status)
