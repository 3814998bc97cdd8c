"""The gate: nodes with a card get the label that brings the agent to them, for clusters without NFD.

Node Feature Discovery labels nodes itself; where it runs nobody publishes what is read here, and nothing is done. A
node about which nothing is published keeps the label it has: silence is no proof that a card has gone, and a person
may have set it.
"""

from collections.abc import Iterable
from typing import Final

import structlog

from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NAMESPACE, NODE_LABEL, NodeFeature, discovery_name, read_bus
from gpu_control_plane.inventory.metrics import GATE, InventoryMetrics
from gpu_control_plane.kube import Key, Runtime, Selection

_PREFIX: Final = discovery_name("")
_PRESENT: Final = "true"

_log = structlog.get_logger(component="inventory.gate")


def wanted_label(node: str, feature: NodeFeature) -> str | None:
    """The label that a node should have by what discovery says of it, None for none.

    `ValueError` with the reason when what it says makes no sense.
    """
    subject = feature.metadata.labels.get(NODE_LABEL, node)
    if subject != node:
        raise ValueError(f"it is about the node {subject}, not about {node}")
    return _PRESENT if read_bus(feature) else None


def build(runtime: Runtime, metrics: InventoryMetrics) -> None:
    """Add the gate to a process."""
    features = runtime.cache(NodeFeature, Selection(namespace=NAMESPACE))
    nodes = runtime.cache(Node)

    async def reconcile(key: Key) -> None:
        node, feature = nodes.get(key.name), features.get(discovery_name(key.name), NAMESPACE)
        if node is None or feature is None:
            return
        try:
            label = wanted_label(node.name, feature)
        except ValueError as error:
            _log.warning("the label of a node is left as it is", node=node.name, feature=feature.name, why=str(error))
            return
        if _held(node) != label:
            _log.info("labelling a node", node=node.name, present=label)
            body: dict[str, object] = {"metadata": {"labels": {str(Label.GPU_PRESENT): label}}}
            with metrics.handling(GATE):
                await runtime.client.patch(Node, node.name, body)

    controller = runtime.controller("gate", reconcile)
    controller.watch(features, _node_of_feature)
    controller.watch(nodes, when=_node_matters)


def _held(node: Node | None) -> str | None:
    return node.metadata.labels.get(Label.GPU_PRESENT) if node is not None else None


def _node_of_feature(feature: NodeFeature) -> Iterable[Key]:
    return (Key(feature.name.removeprefix(_PREFIX)),) if feature.name.startswith(_PREFIX) else ()


def _node_matters(old: Node | None, new: Node | None) -> bool:
    return old is None or new is None or _held(old) != _held(new)
