"""Sets the label `gpu.deckhouse.io/gpu.present` on nodes with a card, which brings the agent to them, for clusters
without Node Feature Discovery (NFD).

NFD labels nodes itself. Where it runs, our discovery does not, so there is no NodeFeature to read here and no label is
touched. A node without such a NodeFeature keeps the label it has: a missing report does not prove that a card has gone,
and a person may have set the label.
"""

from collections.abc import Iterable
from typing import Final

import structlog

from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NODE_LABEL, NodeFeature, discovery_name, read_bus
from gpu_control_plane.inventory.metrics import NODE_LABEL as HANDLER
from gpu_control_plane.inventory.metrics import InventoryMetrics
from gpu_control_plane.kube import Key, Runtime, Selection

_PREFIX: Final = discovery_name("")
_PRESENT: Final = "true"

_log = structlog.get_logger(component="inventory.node_label")


def wanted_label(node: str, feature: NodeFeature) -> str | None:
    """The value that the label should have by the NodeFeature of discovery, None for no label.

    `ValueError` with the reason when the NodeFeature makes no sense.
    """
    subject = feature.metadata.labels.get(NODE_LABEL, node)
    if subject != node:
        raise ValueError(f"it is about the node {subject}, not about {node}")
    return _PRESENT if read_bus(feature) else None


def build(runtime: Runtime, metrics: InventoryMetrics, namespace: str) -> None:
    """Add the labelling of nodes to a process. Discovery publishes in `namespace`."""
    features = runtime.cache(NodeFeature, Selection(namespace=namespace))
    nodes = runtime.cache(Node)

    async def reconcile(key: Key) -> None:
        node, feature = nodes.get(key.name), features.get(discovery_name(key.name), namespace)
        if node is None or feature is None:
            return
        try:
            label = wanted_label(node.name, feature)
        except ValueError as error:
            _log.warning("the NodeFeature of discovery cannot be read", node=node.name, why=str(error))
            return
        if _held(node) != label:
            _log.info("the label gpu.present of a Node is written", node=node.name, value=label)
            body: dict[str, object] = {"metadata": {"labels": {str(Label.GPU_PRESENT): label}}}
            with metrics.handling(HANDLER):
                await runtime.client.patch(Node, node.name, body)

    controller = runtime.controller("gate", reconcile)
    controller.watch(features, _node_of_discovery)
    controller.watch(nodes, when=_label_changed)


def _held(node: Node | None) -> str | None:
    return node.metadata.labels.get(Label.GPU_PRESENT) if node is not None else None


def _node_of_discovery(feature: NodeFeature) -> Iterable[Key]:
    return (Key(feature.name.removeprefix(_PREFIX)),) if feature.name.startswith(_PREFIX) else ()


def _label_changed(old: Node | None, new: Node | None) -> bool:
    return old is None or new is None or _held(old) != _held(new)
