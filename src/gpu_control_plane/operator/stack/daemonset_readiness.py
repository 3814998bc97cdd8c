"""How every DaemonSet of the stack stands, read from caches of DaemonSets, their pods and the nodes."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import DEPLOY, PodLabel
from gpu_control_plane.kube import Cache, Runtime, Selection
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.readiness import (
    ADDED,
    ADDED_ON_HOST,
    Standing,
    Toleration,
    left_out,
    reach_of,
    standing,
)
from gpu_control_plane.operator.views import (
    REVISION_HASH,
    ControllerRevision,
    DaemonSet,
    OperandPod,
    controller_of,
    newest,
)

_GATE: Final = "operator.stack/gate"
_OWNER: Final = "operator.stack/owner"
_TEMPLATE: Final = "operator.stack/template"
_UNREADY: Final = "operator.stack/unready"
_POLICYS: Final = "operator.stack/policys"
_HANDED_OVER: Final = ("nvidia-driver-daemonset", "nvidia-vgpu-manager-daemonset")


class Standings:
    """Answers from memory; `on_change` tells which DaemonSet may stand otherwise now."""

    def __init__(self, runtime: Runtime, namespace: str) -> None:
        self._namespace = namespace
        self._nodes: Cache[Node] = runtime.cache(Node)
        self.daemonsets: Cache[DaemonSet] = runtime.cache(DaemonSet, Selection(namespace=namespace))
        self.pods: Cache[OperandPod] = runtime.cache(OperandPod, Selection(namespace=namespace))
        self._nodes.index(_GATE, _gates)
        self.revisions: Cache[ControllerRevision] = runtime.cache(ControllerRevision, Selection(namespace=namespace))
        self.pods.index(_OWNER, _owner)
        self.revisions.index(_OWNER, _owner)
        self.pods.index(_TEMPLATE, lambda pod: [_template(uid, _hash(pod)) for uid in _owner(pod)])
        self.pods.index(_POLICYS, lambda pod: (_POLICYS,) if of_the_policy(pod) else ())
        self.pods.index(_UNREADY, lambda pod: () if pod.counted_on else _owner(pod))

    def daemonset(self, name: str) -> DaemonSet | None:
        return self.daemonsets.get(name, self._namespace)

    def of_state(self, manifests: Sequence[Manifest]) -> tuple[Standing, ...]:
        """How all DaemonSets of a state stand, and the nodes that belong to none of them."""
        found = [self.of(held["metadata"]["name"], tolerations_of(_pod(held))) for held in manifests]
        by_kind = [_pod(held)["nodeSelector"] for held in manifests if PodLabel.VARIANT in held["metadata"]["labels"]]
        rest = left_out(by_kind, self._candidates(by_kind[0])) if by_kind else None
        return (*found, rest) if rest is not None else tuple(found)

    def of(self, name: str, tolerations: tuple[Toleration, ...]) -> Standing:
        """How the DaemonSet of this name stands."""
        daemonset = self.daemonset(name)
        if daemonset is None:
            return Standing(ready=False, message="it does not exist yet")
        selector = daemonset.spec.template.spec.node_selector
        reach = reach_of(selector, tolerations, self._candidates(selector))
        found = standing(
            daemonset, reach.open, lambda: self._unready(daemonset, reach.open), lambda: self._outdated(daemonset)
        )
        return msgspec.structs.replace(found, reach=reach)

    def selected(self, selector: dict[str, str]) -> set[str]:
        """Names of the nodes with these labels, whether pods may come to them or not."""
        return {node.name for node in self._candidates(selector) if selector.items() <= node.metadata.labels.items()}

    def policy_drivers(self) -> bool:
        """Whether drivers run that the ClusterPolicy has brought, even if it no longer looks after them."""
        return self.pods.count(_POLICYS, _POLICYS) > 0

    def on_change(self, tell: Callable[[], None]) -> None:
        """Call `tell()` when a DaemonSet's numbers or a pod's health have changed."""

        def changed(old: Any, new: Any) -> None:
            if old is None or new is None or old.status != new.status or old.deleting != new.deleting:
                tell()

        self.daemonsets.on_change(changed)
        self.pods.on_change(changed)
        self.revisions.on_change(lambda old, new: tell() if old is None or new is None else None)

    def _candidates(self, selector: dict[str, str]) -> list[Node]:
        """The nodes behind the gate label of an operand, which are far fewer than all."""
        gate = next((f"{key}={value}" for key, value in selector.items() if key.startswith(DEPLOY)), None)
        return self._nodes.by_index(_GATE, gate) if gate is not None else list(self._nodes)

    def _outdated(self, daemonset: DaemonSet) -> int:
        """Pods of a template that is not the newest. A DaemonSet that adopts pods of another one, as when drivers are
        to come precompiled from now on, counts them as its own latest: both are in their first generation."""
        if not daemonset.on_delete:
            return 0
        uid = daemonset.metadata.uid
        latest = newest(self.revisions.by_index(_OWNER, uid))
        current = self.pods.count(_TEMPLATE, _template(uid, latest.hash)) if latest is not None else 0
        return self.pods.count(_OWNER, uid) - current

    def _unready(self, daemonset: DaemonSet, expected: Sequence[str]) -> dict[str, OperandPod | None]:
        uid = daemonset.metadata.uid
        # A pod that goes makes room for the one that takes its place.
        unready = sorted(self.pods.by_index(_UNREADY, uid), key=lambda pod: not pod.deleting)
        found: dict[str, OperandPod | None] = {pod.spec.meant_for: pod for pod in unready if pod.spec.meant_for}
        if self.pods.count(_OWNER, uid) < len(expected):
            served = {pod.spec.meant_for for pod in self.pods.by_index(_OWNER, uid)}
            found |= {node: None for node in expected if node not in served}
        return found


def of_the_policy(pod: OperandPod | None) -> bool:
    """Whether it is a driver's pod that the ClusterPolicy has brought."""
    return pod is not None and pod.metadata.labels.get("app", "").startswith(_HANDED_OVER)


def fell_idle(old: DaemonSet | None, new: DaemonSet | None) -> bool:
    """Whether a DaemonSet is known to serve no node any more: one that is no longer asked for may go then."""
    return old is not None and new is not None and new.idle and not old.idle


def tolerations_of(pod: dict[str, Any]) -> tuple[Toleration, ...]:
    """The tolerations that the pods of a DaemonSet have: those of the manifest, and what Kubernetes adds."""
    own = msgspec.convert(pod.get("tolerations", []), tuple[Toleration, ...])
    return (*own, *ADDED, *(ADDED_ON_HOST if pod.get("hostNetwork") else ()))


def _pod(daemonset: Manifest) -> Manifest:
    found: Manifest = daemonset["spec"]["template"]["spec"]
    return found


def _gates(node: Node) -> list[str]:
    return [f"{key}={value}" for key, value in node.metadata.labels.items() if key.startswith(DEPLOY)]


def _hash(pod: OperandPod) -> str:
    return pod.metadata.labels.get(REVISION_HASH, "")


def _template(daemonset: str, word: str) -> str:
    return f"{daemonset}/{word}"


def _owner(item: OperandPod | ControllerRevision) -> tuple[str, ...]:
    owner = controller_of(item)
    return (owner.uid,) if owner is not None and owner.kind == "DaemonSet" else ()
