"""Builds the view of a node from caches: the only place that knows where its parts come from."""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final

from gpu_control_plane.api.gpunodestate import GPUNodeState, StepResult
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.api.pod import DRIVER_CONFIG_DIGEST, Pod, PodSpec
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.objects import Key, Object, controller_of
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.operator.driver_pods import has_driver_labels, is_driver, is_validator
from gpu_control_plane.operator.node_facts import selects
from gpu_control_plane.operator.upgrade.evictor import Evictor
from gpu_control_plane.operator.upgrade.node_view import AgentView, DriverPod, NodeView, UpgradeLimits, ValidatorPod
from gpu_control_plane.operator.views import REVISION_HASH, ControllerRevision, DaemonSet, newest

_NO_OWNER: Final = ""
"""In the index, in place of the owner of a pod that has none."""
_NODE, _OWNER, _FAILED = "upgrade-node", "upgrade-owner", "upgrade-failed"
_AT_REST: Final = frozenset({UpgradeState.NONE, UpgradeState.DONE, UpgradeState.REQUIRED})
GETS_DRIVER_POD: Final = frozenset({UpgradeState.REQUIRED, UpgradeState.POD_RESTART_REQUIRED})
"""States from which the next one replaces the driver pod, or begins what leads to it."""
_VERSION: Final = re.compile(r":(?P<version>[3-9]\d\d\.\d+(?:\.\d+)?)(?:-|$)")
"""The tag of a driver image, if it begins with the driver's version."""


class UpgradeCaches:
    """The caches of upgrades, and the views of nodes that are built from them."""

    def __init__(self, runtime: Runtime, namespace: str, limits: UpgradeLimits) -> None:
        self._limits = limits
        here = Selection(namespace=namespace)
        self.nodes: Cache[Node] = runtime.cache(Node)
        self.pods: Cache[Pod] = runtime.cache(Pod, here)
        """All pods of the operands: only those of drivers and validators are looked at here."""
        self.daemonsets: Cache[DaemonSet] = runtime.cache(DaemonSet, here)
        self.revisions: Cache[ControllerRevision] = runtime.cache(ControllerRevision, here)
        self.states: Cache[GPUNodeState] = runtime.cache(GPUNodeState)
        self._pools: Cache[GPUPool] = runtime.cache(GPUPool)
        self.namespace = namespace
        self.pods.index(_NODE, lambda pod: (pod.spec.node_name,) if is_driver(pod) or is_validator(pod) else ())
        self.pods.index(_OWNER, lambda pod: (_owner(pod) or (_NO_OWNER,)) if is_driver(pod) else ())
        self.revisions.index(_OWNER, _owner)
        self.nodes.index(_FAILED, lambda node: (_FAILED,) if _state(node) is UpgradeState.FAILED else ())

    def nodes_of_daemonset(self, daemonset: DaemonSet) -> set[Key]:
        """Nodes with driver pods of the DaemonSet, and nodes that wait for another driver, which this one may bring."""
        if not _brings_driver(daemonset):
            return self._nodes_of(daemonset.metadata.uid)
        failed = {node.key for node in self.nodes.by_index(_FAILED, _FAILED)}
        return self._nodes_of(daemonset.metadata.uid) | self._nodes_of(_NO_OWNER) | failed

    def nodes_of_revision(self, revision: ControllerRevision) -> set[Key]:
        """The same for the DaemonSet that the revision belongs to."""
        owner = controller_of(revision)
        daemonset = self.daemonsets.get(owner.name, self.namespace) if owner is not None else None
        return self.nodes_of_daemonset(daemonset) if daemonset is not None else set()

    def driver_secrets(self) -> frozenset[str]:
        """The Secrets that the templates of drivers name."""
        return frozenset().union(*(held.spec.template.spec.secrets for held in self.daemonsets if _brings_driver(held)))

    def view(
        self,
        node: Node,
        evictor: Evictor,
        pods: tuple[Pod, ...] = (),
        *,
        missing_secrets: AbstractSet[str] = frozenset(),
    ) -> NodeView:
        here = self.pods.by_index(_NODE, node.name)
        leaving = evictor.leaving(node.name)
        drivers = tuple(self._driver(pod, leaving) for pod in here if is_driver(pod))
        return NodeView(
            name=node.name,
            labels=node.metadata.labels,
            annotations=node.metadata.annotations,
            unschedulable=node.spec.unschedulable,
            ready=node.ready,
            drivers=drivers,
            validators=tuple(
                ValidatorPod(name=pod.name, ready=pod.containers_ready and not pod.deleting, trouble=pod.trouble)
                for pod in here
                if is_validator(pod)
            ),
            agent=agent_view(self.states.get(node.name), node_ready=node.ready),
            pods=pods,
            pool_resources=frozenset(name for pool in self._pools for name in pool.resource_names if pods),
            leaving=leaving,
            refusals=evictor.refusals(node.name),
            asked_since=evictor.since(node.name),
            limits=self._limits,
            missing_secret=self._missing_secret(node, missing_secrets) if _state(node) in GETS_DRIVER_POD else "",
            wanted=self._wanted(node) if _state(node) not in _AT_REST or any(pod.orphan for pod in drivers) else "",
        )

    def _wanted(self, node: Node) -> str:
        """Revision of the driver for the node, by the node selectors of DaemonSets. Computed only where it matters: for
        nodes that may fail, or did, or whose driver pod has no owner."""
        found = [newest(self.revisions.by_index(_OWNER, held.metadata.uid)) for held in self._drivers_for(node)]
        return ".".join(sorted(revision.hash for revision in found if revision is not None))

    def _missing_secret(self, node: Node, missing: AbstractSet[str]) -> str:
        needed = [held.spec.template.spec.secrets & missing for held in self._drivers_for(node)] if missing else []
        return min((str(Key(name, self.namespace)) for names in needed for name in names), default="")

    def _drivers_for(self, node: Node) -> list[DaemonSet]:
        """The DaemonSets that bring a driver to the node."""
        return [
            held
            for held in self.daemonsets
            if _brings_driver(held) and selects(held.spec.template.spec.node_selector, node.metadata.labels)
        ]

    def _nodes_of(self, owner: str) -> set[Key]:
        return {Key(pod.spec.node_name) for pod in self.pods.by_index(_OWNER, owner) if pod.spec.node_name}

    def _driver(self, pod: Pod, leaving: Mapping[str, float]) -> DriverPod:
        owner = pod.controller
        owned = owner is not None and owner.kind == DaemonSet.resource.kind
        wanted = self.daemonsets.get(owner.name, self.namespace) if owner is not None and owned else None
        revisions = self.revisions.by_index(_OWNER, owner.uid) if owner is not None and owned else []
        statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
        return DriverPod(
            name=pod.name,
            uid=pod.metadata.uid,
            resource_version=pod.metadata.resource_version,
            daemonset=wanted.name if wanted is not None else "",
            current=_current(pod, revisions),
            revision_known=bool(revisions),
            orphan=not owned,
            ready=pod.containers_ready,
            restarts=max((status.restart_count for status in statuses if not status.ready), default=0),
            leaving=pod.deleting or pod.metadata.uid in leaving,
            digest=digest_of(pod.spec),
            wanted_digest=digest_of(wanted.spec.template.spec) if wanted is not None else "",
            version=_version(pod.spec),
            created=_seconds(pod.metadata.creation_timestamp),
            trouble=pod.trouble,
        )


def _current(pod: Pod, revisions: Sequence[ControllerRevision]) -> bool:
    """Whether it is of its DaemonSet's newest template. A pod may be seen before the revision it is of: an unknown
    hash, on a pod younger than the newest known revision, is of a still newer one."""
    latest, pod_hash = newest(revisions), pod.metadata.labels.get(REVISION_HASH)
    if latest is None or pod_hash == latest.hash:
        return True
    known = any(revision.hash == pod_hash for revision in revisions)
    return not known and _seconds(pod.metadata.creation_timestamp) > _seconds(latest.metadata.creation_timestamp) > 0


def _brings_driver(daemonset: DaemonSet) -> bool:
    return not daemonset.deleting and has_driver_labels(daemonset.spec.template.metadata.labels)


def agent_view(state: GPUNodeState | None, *, node_ready: bool) -> AgentView | None:
    """What our agent reports; None if it has never reported, which means that it is not on the node."""
    if state is None or (state.status.validation is None and state.status.plugin is None):
        return None
    status, validation = state.status, state.status.validation
    steps = validation.steps if validation is not None else ()
    return AgentView(
        alive=node_ready,
        quiesced=status.quiesced is not None,
        driver=status.driver.version if status.driver is not None else "",
        checked_driver=(validation.driver_version or "") if validation is not None else "",
        passed={held.name: _seconds(held.at) for held in steps if held.result is StepResult.PASSED},
        failed={held.name: held.message or "" for held in steps if held.result is StepResult.FAILED},
    )


def _state(node: Node) -> UpgradeState:
    return UpgradeState(node.metadata.labels.get(NodeLabel.UPGRADE_STATE, ""))


def _owner(item: Object) -> tuple[str, ...]:
    owner = controller_of(item)
    return (owner.uid,) if owner is not None else ()


def digest_of(spec: PodSpec) -> str:
    """The digest over driver and configuration that a driver pod has in its environment."""
    values = (
        env.value for container in spec.all_containers for env in container.env if env.name == DRIVER_CONFIG_DIGEST
    )
    return next(values, "")


def _version(spec: PodSpec) -> str:
    found = (_VERSION.search(container.image) for container in spec.containers)
    return next((match["version"] for match in found if match), "")


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment is not None else 0.0
