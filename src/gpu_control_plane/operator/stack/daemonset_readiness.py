"""Whether every DaemonSet of the stack runs on all of its nodes, read from caches of DaemonSets, pods and nodes."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import DEPLOY, PodLabel
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Cache, Runtime, Selection, Signal
from gpu_control_plane.kube.objects import controller_of
from gpu_control_plane.operator.driver_pods import of_cluster_policy
from gpu_control_plane.operator.node_facts import selects
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.readiness import (
    DAEMONSET_TOLERATIONS,
    HOST_NETWORK_TOLERATIONS,
    Readiness,
    Toleration,
    node_coverage,
    readiness_of,
    unmatched_nodes,
)
from gpu_control_plane.operator.views import REVISION_HASH, ControllerRevision, DaemonSet, newest

_DEPLOY_LABEL: Final = "operator.stack/deploy-label"
_OWNER: Final = "operator.stack/owner"
_TEMPLATE: Final = "operator.stack/template"
_UNREADY: Final = "operator.stack/unready"
_POLICY_DRIVERS: Final = "operator.stack/policy-drivers"


class DaemonSetReadiness:
    """The operands' DaemonSets, pods and revisions, and what they say of readiness. `changed` is fired when the numbers
    of a DaemonSet or the health of a pod have changed."""

    def __init__(self, runtime: Runtime, namespace: str) -> None:
        self._namespace = namespace
        self._nodes: Cache[Node] = runtime.cache(Node)
        self.daemonsets: Cache[DaemonSet] = runtime.cache(DaemonSet, Selection(namespace=namespace))
        self.pods: Cache[Pod] = runtime.cache(Pod, Selection(namespace=namespace))
        self.revisions: Cache[ControllerRevision] = runtime.cache(ControllerRevision, Selection(namespace=namespace))
        self._nodes.index(_DEPLOY_LABEL, _deploy_labels)
        self.pods.index(_OWNER, _owner)
        self.revisions.index(_OWNER, _owner)
        self.pods.index(_TEMPLATE, lambda pod: [_template(uid, _hash(pod)) for uid in _owner(pod)])
        self.pods.index(_POLICY_DRIVERS, lambda pod: (_POLICY_DRIVERS,) if of_cluster_policy(pod) else ())
        self.pods.index(_UNREADY, lambda pod: () if pod.available else _owner(pod))
        self.changed = Signal("operand-readiness").watch(self.daemonsets, when=_status_changed)
        self.changed.watch(self.pods, when=_status_changed)
        self.changed.watch(self.revisions, when=lambda old, new: old is None or new is None)

    def daemonset(self, name: str) -> DaemonSet | None:
        return self.daemonsets.get(name, self._namespace)

    def of_state(self, manifests: Sequence[Manifest]) -> tuple[Readiness, ...]:
        """The readiness of all DaemonSets of a state, and of the nodes that none of them selects."""
        found = [self.of(held["metadata"]["name"], tolerations_of(_pod(held))) for held in manifests]
        by_kind = [_pod(held)["nodeSelector"] for held in manifests if PodLabel.VARIANT in held["metadata"]["labels"]]
        rest = unmatched_nodes(by_kind, self._candidates(by_kind[0])) if by_kind else None
        return (*found, rest) if rest is not None else tuple(found)

    def of(self, name: str, tolerations: tuple[Toleration, ...]) -> Readiness:
        """The readiness of the DaemonSet of this name."""
        daemonset = self.daemonset(name)
        if daemonset is None:
            return Readiness(ready=False, message="it does not exist yet")
        selector = daemonset.spec.template.spec.node_selector
        coverage = node_coverage(selector, tolerations, self._candidates(selector))
        found = readiness_of(
            daemonset,
            coverage.schedulable,
            lambda: self._unready(daemonset, coverage.schedulable),
            lambda: self._outdated(daemonset),
        )
        return msgspec.structs.replace(found, coverage=coverage)

    def selected(self, selector: dict[str, str]) -> set[str]:
        """Names of the nodes with these labels, whether pods tolerate their taints or not."""
        return {node.name for node in self._candidates(selector) if selects(selector, node.metadata.labels)}

    def has_policy_drivers(self) -> bool:
        """Whether there are driver pods that a ClusterPolicy has brought, also such as no DaemonSet owns any more."""
        return self.pods.count(_POLICY_DRIVERS, _POLICY_DRIVERS) > 0

    def may_run_old_template(self, name: str, generation: int) -> bool:
        """Whether pods may run that are of an older template than the DaemonSet has in this generation. They use what
        that template names, such as ConfigMaps. They do for as long as its controller has not looked."""
        found = self.daemonset(name)
        if found is None or generation <= 1:
            return found is not None and self._outdated(found) > 0
        numbers = found.status
        updated = numbers.updated_number_scheduled >= numbers.desired_number_scheduled
        return numbers.observed_generation < generation or not updated or self._outdated(found) > 0

    def _candidates(self, selector: dict[str, str]) -> list[Node]:
        """The nodes with the operand's deploy label, which are far fewer than all."""
        label = next((f"{key}={value}" for key, value in selector.items() if key.startswith(DEPLOY)), None)
        return self._nodes.by_index(_DEPLOY_LABEL, label) if label is not None else list(self._nodes)

    def _outdated(self, daemonset: DaemonSet) -> int:
        """The number of pods of a template that is not the newest. A DaemonSet that adopts pods of another one, as when
        drivers are precompiled from now on, counts them as updated: both are in their first generation."""
        if not daemonset.on_delete:
            return 0
        uid = daemonset.metadata.uid
        latest = newest(self.revisions.by_index(_OWNER, uid))
        current = self.pods.count(_TEMPLATE, _template(uid, latest.hash)) if latest is not None else 0
        return self.pods.count(_OWNER, uid) - current

    def _unready(self, daemonset: DaemonSet, expected: Sequence[str]) -> dict[str, Pod | None]:
        uid = daemonset.metadata.uid
        # Of two pods for one node, the one that is not being deleted is reported.
        unready = sorted(self.pods.by_index(_UNREADY, uid), key=lambda pod: not pod.deleting)
        found: dict[str, Pod | None] = {pod.spec.target_node: pod for pod in unready if pod.spec.target_node}
        if self.pods.count(_OWNER, uid) < len(expected):
            served = {pod.spec.target_node for pod in self.pods.by_index(_OWNER, uid)}
            found |= {node: None for node in expected if node not in served}
        return found


def became_idle(old: DaemonSet | None, new: DaemonSet | None) -> bool:
    """Whether a DaemonSet has no node any more: one that is not asked for can be deleted now."""
    return old is not None and new is not None and new.idle and not old.idle


def became_updated(old: DaemonSet | None, new: DaemonSet | None) -> bool:
    """Whether the last pod of an older template has gone: what only such pods used can be deleted now."""
    return old is not None and new is not None and new.on_delete and _all_updated(new) and not _all_updated(old)


def _all_updated(daemonset: DaemonSet) -> bool:
    numbers = daemonset.status
    observed = numbers.observed_generation >= daemonset.metadata.generation
    return observed and numbers.updated_number_scheduled >= numbers.desired_number_scheduled


def tolerations_of(pod: dict[str, Any]) -> tuple[Toleration, ...]:
    """The tolerations that the pods of a DaemonSet have: those of the manifest, and those that Kubernetes adds."""
    own = msgspec.convert(pod.get("tolerations", []), tuple[Toleration, ...])
    return (*own, *DAEMONSET_TOLERATIONS, *(HOST_NETWORK_TOLERATIONS if pod.get("hostNetwork") else ()))


def _status_changed(old: DaemonSet | Pod | None, new: DaemonSet | Pod | None) -> bool:
    return old is None or new is None or old.status != new.status or old.deleting != new.deleting


def _pod(daemonset: Manifest) -> Manifest:
    found: Manifest = daemonset["spec"]["template"]["spec"]
    return found


def _deploy_labels(node: Node) -> list[str]:
    return [f"{key}={value}" for key, value in node.metadata.labels.items() if key.startswith(DEPLOY)]


def _hash(pod: Pod) -> str:
    return pod.metadata.labels.get(REVISION_HASH, "")


def _template(daemonset: str, revision: str) -> str:
    return f"{daemonset}/{revision}"


def _owner(item: Pod | ControllerRevision) -> tuple[str, ...]:
    owner = controller_of(item)
    return (owner.uid,) if owner is not None and owner.kind == "DaemonSet" else ()
