"""What the active ClusterPolicy asks of labels, drivers and upgrades, and whether this operator may write at all.

One answer for labelling, states, drivers and upgrades. Answers come from caches and are right on every replica at any
moment.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import Cache, Runtime, Signal
from gpu_control_plane.kube.predicates import spec_changed
from gpu_control_plane.operator.cluster_policy import ParsedPolicy, parse_active_policy, uses_driver_crd
from gpu_control_plane.operator.gpu_cluster import GPUClusterWatch
from gpu_control_plane.operator.labelling.decide import (
    DriverOwner,
    LabelSpec,
    gets_driver,
    label_spec_of,
    labelled_by_us,
)
from gpu_control_plane.operator.node_facts import is_gpu_node
from gpu_control_plane.operator.nvidia_lease import NVIDIALeaseWatch
from gpu_control_plane.operator.openshift import OpenShiftWatch
from gpu_control_plane.operator.upgrade.groups import CLUSTER_POLICY, UpgradeGroup

_GPU_NODES = "operator/gpu-nodes"
_LABELLED = "operator/labelled"


class NodeOwners(Protocol):
    """What NVIDIADrivers say of nodes."""

    changed: Signal
    """Fired when the owners of nodes may have changed, and when a DaemonSet of an NVIDIADriver has come or gone."""

    def owner(self, node: Node) -> DriverOwner | None:
        """The NVIDIADriver that should own a node; None while that is not certain."""

    def upgrade_groups(self) -> Sequence[UpgradeGroup]:
        """The upgrade policy of each NVIDIADriver, with its nodes."""

    def have_daemonsets(self) -> bool:
        """Whether there are DaemonSets of NVIDIADrivers."""


class ActivePolicy:
    """The active ClusterPolicy, the nodes with cards, and whether NVIDIA's operator is active.

    `changed` is fired when any of the answers may have changed, but for those that follow from a single node's labels:
    these are seen by watching `nodes`.
    """

    def __init__(
        self,
        runtime: Runtime,
        nvidia_lease: NVIDIALeaseWatch,
        owners: NodeOwners,
        *,
        openshift: OpenShiftWatch,
        gpu_clusters: GPUClusterWatch,
    ) -> None:
        self.nvidia_lease = nvidia_lease
        self.policies: Cache[StoredClusterPolicy] = runtime.cache(StoredClusterPolicy)
        self.nodes: Cache[Node] = runtime.cache(Node)
        self._owners = owners
        self._openshift = openshift
        self._gpu_clusters = gpu_clusters
        self._label_spec: tuple[str, LabelSpec] | None = None
        self.nodes.index(_GPU_NODES, lambda node: (_GPU_NODES,) if is_gpu_node(node.metadata.labels) else ())
        self.nodes.index(_LABELLED, lambda node: (_LABELLED,) if labelled_by_us(node) else ())
        self.changed = Signal("active-policy").watch(self.policies, when=spec_changed)
        for signal in (nvidia_lease.changed, owners.changed, openshift.changed, gpu_clusters.changed):
            self.changed.watch(signal)

    def current(self) -> ParsedPolicy | None:
        found = parse_active_policy(self.policies)
        problem = self._gpu_clusters.problem()
        return msgspec.structs.replace(found, problem=problem) if found is not None and problem else found

    def spec(self) -> ClusterPolicySpec | None:
        """The spec of the active ClusterPolicy; None without a policy, or if it cannot be read."""
        found = self.current()
        return found.spec if found is not None else None

    def gpu_nodes(self) -> list[Node]:
        return self.nodes.by_index(_GPU_NODES, _GPU_NODES)

    def gpu_node_count(self) -> int:
        return self.nodes.count(_GPU_NODES, _GPU_NODES)

    def may_write(self) -> bool:
        """False while NVIDIA's operator is active, and until it is known whether this is OpenShift, and whether there
        is a GPUCluster: drivers rendered for another platform would replace those that run."""
        detected = self._openshift.detected.is_set() and self._gpu_clusters.detected.is_set()
        return detected and self.nvidia_lease.active() is None

    async def platform_detected(self) -> None:
        """Wait until it is known whether this is OpenShift, and whether there is a GPUCluster."""
        await self._openshift.detected.wait()
        await self._gpu_clusters.detected.wait()

    def label_spec(self) -> LabelSpec | None:
        """What the active ClusterPolicy asks of labels; None without one that can be carried out."""
        spec = self._own_label_spec()
        if spec is not None and not spec.driver_crd and self._removes_nvidia_drivers():
            # Pods of NVIDIADrivers follow the owner label: it stays until their DaemonSets are gone.
            return msgspec.structs.replace(spec, driver_crd=True)
        return spec

    def driver_owner(self, node: Node) -> DriverOwner | None:
        """The NVIDIADriver that should own a node; None while that is not certain, or while NVIDIADrivers are being
        removed."""
        return self._owners.owner(node) if not self._removes_nvidia_drivers() else None

    def removed(self) -> bool:
        """Whether there is no ClusterPolicy, but nodes still carry a label that only this operator writes."""
        return self.current() is None and self.nodes.count(_LABELLED, _LABELLED) > 0

    def upgrade_groups(self) -> Sequence[UpgradeGroup] | None:
        """Every upgrade policy with the nodes that get their driver by it. None while that is not known: a node in no
        group would have its upgrade switched off."""
        found, spec = self.current(), self._own_label_spec()
        if found is None:
            return ()
        if found.spec is None or spec is None:
            return None
        if spec.driver_crd:
            groups = self._owners.upgrade_groups()
        else:
            policy = None if spec.sandbox else found.spec.driver.upgrade_policy
            groups = (UpgradeGroup(CLUSTER_POLICY, policy, frozenset(node.name for node in self.gpu_nodes())),)
        return tuple(self._with_driver_nodes_only(group, spec) for group in groups)

    def _own_label_spec(self) -> LabelSpec | None:
        """What the policy's own spec asks of labels, worked out once for each generation."""
        found = self.current()
        if found is None or found.spec is None:
            return None
        version = f"{found.policy.metadata.uid}/{found.policy.metadata.generation}"
        if self._label_spec is None or self._label_spec[0] != version:
            self._label_spec = version, label_spec_of(found.spec)
        return self._label_spec[1]

    def _removes_nvidia_drivers(self) -> bool:
        """Whether there are still DaemonSets of NVIDIADrivers although the ClusterPolicy brings drivers itself."""
        return self._owners.have_daemonsets() and not uses_driver_crd(self.spec())

    def _with_driver_nodes_only(self, group: UpgradeGroup, spec: LabelSpec) -> UpgradeGroup:
        """The group without nodes that get no driver from us. Nothing is ever upgraded on them, but they would count:
        25 % of all would be too many of the rest, and a canary among them would never finish."""
        held = ((name, self.nodes.get(name)) for name in group.nodes)
        ours = (name for name, node in held if node is not None and gets_driver(node.metadata.labels, spec))
        return msgspec.structs.replace(group, nodes=frozenset(ours))
