"""How a node changes from one NVIDIADriver to another without its driver being taken away.

A DaemonSet removes its pod as soon as the node carries another owner's name. So the pod is made nobody's first, in a
way that its DaemonSet cannot take it back; then the name may change. The upgrade of the node replaces the pod in turn.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.kube import Key, Runtime
from gpu_control_plane.kube.changes import labels_changed, spec_changed
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.operator.active_policy import Charge
from gpu_control_plane.operator.drivers.ownership_index import OwnerBook
from gpu_control_plane.operator.drivers.predicates import ALL, all_of_them, owner_name
from gpu_control_plane.operator.stack.daemonset_readiness import Standings
from gpu_control_plane.operator.stack.orphan_delete import make_nobodys
from gpu_control_plane.operator.upgrade.caches import is_driver
from gpu_control_plane.operator.views import OperandPod, controller_of

_ON_NODE: Final = "operator.drivers/on-node"
_FOUND_BY: Final = ("app",)
"""Without the label, no DaemonSet of an NVIDIADriver finds the pod."""

_log = structlog.get_logger(component="operator.drivers")


class Moves:
    """The controller that prepares nodes for another owner."""

    def __init__(
        self, runtime: Runtime, charge: Charge, standings: Standings, book: OwnerBook, asked: Callable[[], bool]
    ) -> None:
        self._client = runtime.client
        self._charge = charge
        self._standings = standings
        self._book = book
        self._asked = asked
        standings.pods.index(_ON_NODE, lambda pod: (pod.spec.node_name,) if is_driver(pod) else ())
        self._controller = runtime.controller("driver-moves", self._prepare, workers=1)
        self._controller.watch(charge.nodes, all_of_them, when=self._moved)
        self._controller.watch(charge.policies, all_of_them, when=spec_changed)

    def wake(self) -> None:
        """Owners, or the permission to write, may have changed."""
        self._controller.enqueue(ALL)

    def unprepared(self, node: Node, driver: str) -> list[OperandPod]:
        """The driver pods of a node that would be taken away if the node were this NVIDIADriver's."""
        if node.metadata.labels.get(NodeLabel.DRIVER_OWNER) in (None, driver):
            return []
        return [pod for pod in self._standings.pods.by_index(_ON_NODE, node.name) if self._of_another(pod, driver)]

    def _of_another(self, pod: OperandPod, driver: str) -> bool:
        owner = controller_of(pod)
        daemonset = self._standings.daemonsets.get(owner.name, pod.metadata.namespace) if owner is not None else None
        return daemonset is not None and owner_name(daemonset) not in ("", driver) and not pod.deleting

    def _moved(self, old: Node | None, new: Node | None) -> bool:
        """Whether a node that carries an owner's name is to have another one."""
        if new is None or not labels_changed(old, new):
            return False
        held, wish = new.metadata.labels.get(NodeLabel.DRIVER_OWNER), self._book.owner(new)
        return bool(held) and wish is not None and wish.name not in (None, held)

    async def _prepare(self, _key: Key) -> None:
        if not self._charge.may_write() or not self._asked():
            return
        for driver in self._book.drivers():
            nodes = map(self._charge.nodes.get, self._book.unlabelled(driver.name))
            pods = [pod for node in nodes if node is not None for pod in self.unprepared(node, driver.name)]
            await gather_all(make_nobodys(self._client, pod, without=_FOUND_BY) for pod in pods)
            if pods:
                _log.info("drivers run on under another owner", owner=driver.name, pods=len(pods))
            await asyncio.sleep(0)
