"""Hands a node over from one NVIDIADriver to another without deleting its running driver.

A DaemonSet deletes its pod as soon as the node's label names another owner. So the pod is released first, without the
label by which its DaemonSet would adopt it again; then the owner label may change. The upgrade of the node replaces the
pod later.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Key, Runtime, Signal
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.objects import controller_of
from gpu_control_plane.kube.predicates import labels_changed, spec_changed
from gpu_control_plane.operator.active_policy import ActivePolicy
from gpu_control_plane.operator.cluster_policy import uses_driver_crd
from gpu_control_plane.operator.driver_pods import is_driver
from gpu_control_plane.operator.drivers.ownership_index import OwnershipIndex
from gpu_control_plane.operator.drivers.predicates import all_drivers, daemonsets_changed, owner_name, owner_uid
from gpu_control_plane.operator.labelling.decide import DriverOwner
from gpu_control_plane.operator.stack.daemonset_readiness import DaemonSetReadiness
from gpu_control_plane.operator.stack.orphan_delete import release_pod
from gpu_control_plane.operator.upgrade.groups import UpgradeGroup

_NODE: Final = "operator.drivers/node"
_OWNED: Final = "operator.drivers/owned"
_SELECTOR_LABELS: Final = ("app",)
"""Without this label no DaemonSet of an NVIDIADriver selects the pod."""

_log = structlog.get_logger(component="operator.drivers")


class DriverOwnership:
    """What NVIDIADrivers say to labelling and to upgrades. `changed` is fired when the owners of nodes may have
    changed, and when a DaemonSet of an NVIDIADriver was created or has gone."""

    def __init__(self, index: OwnershipIndex, operands: DaemonSetReadiness) -> None:
        self.index = index
        self._pods = operands.pods
        self._daemonsets = operands.daemonsets
        self._pods.index(_NODE, lambda pod: (pod.spec.node_name,) if is_driver(pod) else ())
        self._daemonsets.index(_OWNED, lambda item: (_OWNED,) if owner_uid(item) else ())
        self.changed = Signal("driver-owners").watch(index.changed).watch(self._daemonsets, when=daemonsets_changed)

    def owner(self, node: Node) -> DriverOwner | None:
        """The NVIDIADriver that should own a node; None while that is not certain, and until the node's driver pod has
        been released from its present owner."""
        owner = self.index.owner(node)
        return None if owner is not None and owner.name and self.unreleased_pods(node, owner.name) else owner

    def upgrade_groups(self) -> Sequence[UpgradeGroup]:
        return self.index.upgrade_groups()

    def have_daemonsets(self) -> bool:
        return self._daemonsets.count(_OWNED, _OWNED) > 0

    def unreleased_pods(self, node: Node, driver: str) -> list[Pod]:
        """The driver pods of a node that would be deleted if its label named this NVIDIADriver."""
        if node.metadata.labels.get(NodeLabel.DRIVER_OWNER) in (None, driver):
            return []
        return [pod for pod in self._pods.by_index(_NODE, node.name) if self._of_another_driver(pod, driver)]

    def _of_another_driver(self, pod: Pod, driver: str) -> bool:
        owner = controller_of(pod)
        daemonset = self._daemonsets.get(owner.name, pod.metadata.namespace) if owner is not None else None
        return daemonset is not None and owner_name(daemonset) not in ("", driver) and not pod.deleting


class NodeHandover:
    """The controller that releases driver pods from their DaemonSets before their node gets another owner."""

    def __init__(self, runtime: Runtime, active_policy: ActivePolicy, ownership: DriverOwnership) -> None:
        self._client = runtime.client
        self._active_policy = active_policy
        self._ownership = ownership
        controller = runtime.controller("driver-handover", self._reconcile, workers=1)
        controller.watch(active_policy.nodes, all_drivers, when=self._owner_changes)
        controller.watch(active_policy.policies, all_drivers, when=spec_changed)
        controller.watch(active_policy.changed, all_drivers)

    def _owner_changes(self, old: Node | None, new: Node | None) -> bool:
        """Whether the label of a node names one owner, and another one should own it."""
        if new is None or not labels_changed(old, new):
            return False
        held, owner = new.metadata.labels.get(NodeLabel.DRIVER_OWNER), self._ownership.index.owner(new)
        return bool(held) and owner is not None and owner.name not in (None, held)

    async def _reconcile(self, _key: Key) -> None:
        if not self._active_policy.may_write() or not uses_driver_crd(self._active_policy.spec()):
            return
        index = self._ownership.index
        for driver in index.drivers():
            nodes = map(self._active_policy.nodes.get, index.unlabelled_nodes(driver.name))
            pods = [
                pod for node in nodes if node is not None for pod in self._ownership.unreleased_pods(node, driver.name)
            ]
            await gather_all(release_pod(self._client, pod, without=_SELECTOR_LABELS) for pod in pods)
            if pods:
                _log.info("driver pods released for another owner", owner=driver.name, pods=len(pods))
            await asyncio.sleep(0)
