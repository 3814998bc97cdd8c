"""Writes the labels of nodes: one patch for each node that differs, and nothing for one that does not."""

from typing import Any, Final

import structlog

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.kube import Client, Key, Runtime
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.signal import Keyed
from gpu_control_plane.operator.labelling.decide import LabelPatch
from gpu_control_plane.operator.labelling.label_index import DriverPodNodes, LabelIndex, LabelPolicy
from gpu_control_plane.operator.labelling.metrics import LabellingMetrics

_WORKERS: Final = 32

_log = structlog.get_logger(component="operator.labelling")


class LabellingController:
    """The controller for labels of nodes, and its index."""

    def __init__(self, runtime: Runtime, policy: LabelPolicy, driver_pods: DriverPodNodes) -> None:
        nodes, states = runtime.cache(Node), runtime.cache(GPUNodeState)
        self.index = LabelIndex(nodes, states, policy, driver_pods)
        self._runtime = runtime
        self._policy = policy
        self._nodes = nodes
        self._metrics = LabellingMetrics(runtime.metrics.registry, self.index, policy.may_write)
        # The index has subscribed to each of these first, so it is up to date when the controller reads it.
        controller = runtime.controller("labelling", self._reconcile, workers=_WORKERS)
        controller.watch(nodes, when=self._is_pending)
        controller.watch(states, when=self._is_pending)
        controller.watch(driver_pods.changed, when=self._is_pending)
        controller.watch(policy.changed, lambda _fired: map(Key, self.index.pending))

    async def _reconcile(self, key: Key) -> None:
        node = self._nodes.at(key)
        if node is None or not self._policy.may_write():
            return
        patch = self.index.patch_for(node)
        if not patch:
            return
        try:
            await patch_node(self._runtime.client, node, patch)
        except NotFound:
            return
        self._metrics.written.inc()
        _log.info("node labels written", node=node.name, why=patch.reason, labels=len(patch.labels))

    def _is_pending(self, old: Keyed | None, new: Keyed | None) -> bool:
        item = new if new is not None else old
        return item is not None and item.key.name in self.index.pending


async def patch_node(client: Client, node: Node, patch: LabelPatch) -> None:
    """Write `patch` as one merge patch, unless the Node has changed since it was decided on: then `Conflict`."""
    metadata: dict[str, Any] = {}
    if patch.labels:
        metadata["labels"] = patch.labels
    if patch.annotations:
        metadata["annotations"] = patch.annotations
    await client.patch(Node, node.name, {"metadata": metadata}, resource_version=node.metadata.resource_version)
