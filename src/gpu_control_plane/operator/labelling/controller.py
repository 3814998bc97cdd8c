"""Writes the labels of nodes: one patch for each node that differs, and nothing for one that does not."""

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.kube import Key, Runtime
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.operator.labelling.label_index import LabelBook, Policies
from gpu_control_plane.operator.labelling.metrics import LabellingMetrics
from gpu_control_plane.operator.labelling.patch import patch_node

_WORKERS: Final = 32

_log = structlog.get_logger(component="operator.labelling")


def build_labelling(
    runtime: Runtime, policies: Policies, driver_pod: Callable[[str], bool] = lambda _node: False
) -> "Labelling":
    """Add labelling to a process.

    `driver_pod` says whether a driver pod of the stack is on a node. When an answer of it or of `policies` changes,
    say so with `enqueue` or `enqueue_all`: no cache of this module shows it.
    """
    return Labelling(runtime, policies, driver_pod)


class Labelling:
    """The controller for labels of nodes, and its book."""

    def __init__(self, runtime: Runtime, policies: Policies, driver_pod: Callable[[str], bool]) -> None:
        nodes, states = runtime.cache(Node), runtime.cache(GPUNodeState)
        self.book = LabelBook(nodes, states, policies, driver_pod)
        self._runtime = runtime
        self._policies = policies
        self._nodes = nodes
        self._metrics = LabellingMetrics(runtime.metrics.registry, self.book, policies.may_write)
        # The book hears of a change before the controller does, so it can be asked which changes matter.
        self._controller = (
            runtime.controller("labelling", self._reconcile, workers=_WORKERS)
            .watch(nodes, when=self._matters)
            .watch(states, self._node_of, when=self._matters)
        )

    def enqueue_all(self) -> None:
        """What is asked of nodes has changed."""
        self.book.recount()
        for name in self.book.outstanding:
            self._controller.enqueue(Key(name))

    def enqueue(self, node: str) -> None:
        """What is asked of one node has changed."""
        self.book.look_at(node)
        if node in self.book.outstanding:
            self._controller.enqueue(Key(node))

    async def _reconcile(self, key: Key) -> None:
        node = self._nodes.at(key)
        if node is None or not self._policies.may_write():
            return
        change = self.book.change(node)
        if not change:
            return
        try:
            await patch_node(self._runtime.client, node, change)
        except NotFound:
            return
        self._metrics.written.inc()
        _log.info("labels written", node=node.name, why=change.reason, labels=len(change.labels))

    def _matters(self, old: Node | GPUNodeState | None, new: Node | GPUNodeState | None) -> bool:
        held = new if new is not None else old
        return held is not None and held.name in self.book.outstanding

    @staticmethod
    def _node_of(state: GPUNodeState) -> Iterable[Key]:
        return (Key(state.name),)
