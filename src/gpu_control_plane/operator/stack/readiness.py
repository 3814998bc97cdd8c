"""Whether a DaemonSet runs on all of its nodes, and if not, on which nodes it does not and why. Pure.

A DaemonSet that its controller has not observed yet has the same numbers in its status as one without any node. So the
numbers count only when they are of the present generation and cover every node that the DaemonSet selects.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node, Taint
from gpu_control_plane.api.nvidia.status import MAX_NODES_NAMED, NodeTrouble
from gpu_control_plane.api.pod import Pod, PodCondition
from gpu_control_plane.kube.sentences import counted, counted_are
from gpu_control_plane.operator.node_facts import selects
from gpu_control_plane.operator.views import DaemonSet


class Toleration(msgspec.Struct, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect):
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return (self.key, self.value) == (taint.key, taint.value)


def _exists(key: str, effect: str) -> Toleration:
    return Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect=effect)


DAEMONSET_TOLERATIONS: Final = (
    _exists("not-ready", "NoExecute"),
    _exists("unreachable", "NoExecute"),
    _exists("disk-pressure", "NoSchedule"),
    _exists("memory-pressure", "NoSchedule"),
    _exists("pid-pressure", "NoSchedule"),
    _exists("unschedulable", "NoSchedule"),
)
"""What Kubernetes adds to the tolerations of all DaemonSet pods. The taint `not-ready:NoSchedule` is not among them, so
new pods do not come to a node that is not ready."""
HOST_NETWORK_TOLERATIONS: Final = (_exists("network-unavailable", "NoSchedule"),)
"""What it adds for pods that use the network of the host."""
_MISSING: Final = (
    "no pod has been made for the node yet; if none comes, `kubectl describe daemonset` says who refuses it:"
    " Pod Security (set psa.enabled), a quota or a webhook"
)
_CREATING: Final = "ContainerCreating"
_STARTING: Final = (_CREATING, "PodInitializing")
"""Reasons that the kubelet gives for containers that wait for others, or for image, volumes and network."""


class NodeCoverage(msgspec.Struct, frozen=True):
    """The nodes that a DaemonSet selects: those whose taints its pods tolerate, and the others, each with a taint that
    they do not tolerate."""

    schedulable: tuple[str, ...] = ()
    tainted: Mapping[str, str] = {}


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a DaemonSet is ready, and on which nodes it is not."""

    ready: bool
    desired: int = 0
    available: int = 0
    message: str = ""
    troubles: tuple[NodeTrouble, ...] = ()
    coverage: NodeCoverage = NodeCoverage()


def readiness_of(
    daemonset: DaemonSet,
    expected: Iterable[str],
    unready: Callable[[], Mapping[str, Pod | None]],
    outdated: Callable[[], int] = lambda: 0,
) -> Readiness:
    """The readiness of a DaemonSet that should run on the nodes `expected`.

    `unready` gives those of its nodes on which it is not ready, with the pod if there is one; it is called only when
    the numbers say that there are some. `outdated` counts pods of an older template, which the numbers may hide.
    """
    numbers, wanted = daemonset.status, set(expected)
    desired = max(numbers.desired_number_scheduled, len(wanted))
    available = min(numbers.number_available, desired)
    if numbers.observed_generation < daemonset.metadata.generation:
        return Readiness(
            ready=False, desired=desired, available=0, message="its latest change has not been looked at yet"
        )
    if numbers.desired_number_scheduled < len(wanted):
        missing = len(wanted) - numbers.desired_number_scheduled
        return Readiness(
            ready=False,
            desired=desired,
            available=available,
            message=f"{counted_are(missing, 'node')} not counted in yet",
        )
    old = max(numbers.desired_number_scheduled - numbers.updated_number_scheduled, outdated())
    if not old and numbers.number_available == numbers.desired_number_scheduled:
        return Readiness(ready=True, desired=desired, available=available)
    found = unready()
    troubles = [trouble_of(node, pod) for node, pod in sorted(found.items())[:MAX_NODES_NAMED]]
    if old and not troubles:
        until = "; each is replaced when it is deleted" if daemonset.on_delete else ""
        return Readiness(
            ready=False,
            desired=desired,
            available=available,
            message=f"{counted_are(old, 'pod')} of an older version{until}",
        )
    return Readiness(
        ready=False,
        desired=desired,
        available=available,
        message=f"it runs on {available} of {counted(desired, 'node')}",
        troubles=tuple(troubles),
    )


def node_coverage(
    selector: Mapping[str, str], tolerations: Iterable[Toleration], nodes: Iterable[Node]
) -> NodeCoverage:
    """The nodes that pods with this selector go to, and those whose taints they do not tolerate."""
    tolerated, names, tainted = tuple(tolerations), [], {}
    for node in nodes:
        if node.deleting or not selects(selector, node.metadata.labels):
            continue
        if node.spec.taints and (taint := _untolerated(node, tolerated)):
            tainted[node.name] = taint
        else:
            names.append(node.name)
    return NodeCoverage(tuple(names), tainted)


def merged_coverage(coverages: Iterable[NodeCoverage]) -> NodeCoverage:
    """The nodes that pods of any of the DaemonSets can run on, and those that none can run on."""
    held = tuple(coverages)
    schedulable = dict.fromkeys(name for coverage in held for name in coverage.schedulable)
    tainted = {name: taint for coverage in held for name, taint in coverage.tainted.items() if name not in schedulable}
    return NodeCoverage(tuple(schedulable), dict(sorted(tainted.items())))


def schedulable_nodes(
    selector: Mapping[str, str], tolerations: Iterable[Toleration], nodes: Iterable[Node]
) -> list[str]:
    """Names of the nodes to which pods with this selector and these tolerations go."""
    return list(node_coverage(selector, tolerations, nodes).schedulable)


def unmatched_nodes(selectors: Sequence[Mapping[str, str]], nodes: Iterable[Node]) -> Readiness | None:
    """The readiness of nodes that none of a state's DaemonSets selects, where each DaemonSet is for a kind of nodes."""
    others = [
        node
        for node in nodes
        if not node.deleting and not any(selects(selector, node.metadata.labels) for selector in selectors)
    ]
    if not others:
        return None
    keys = sorted({key for selector in selectors for key in selector})
    troubles = [_unmatched(node, keys) for node in sorted(others, key=lambda node: node.name)[:MAX_NODES_NAMED]]
    return Readiness(
        ready=False,
        desired=len(others),
        message=f"nothing suits {counted(len(others), 'node')}",
        troubles=tuple(troubles),
    )


def _unmatched(node: Node, keys: Sequence[str]) -> NodeTrouble:
    lacking = [key for key in keys if not node.metadata.labels.get(key)]
    why = (
        f"it lacks the labels by which its DaemonSet is chosen: {', '.join(lacking)}. Node Feature Discovery sets them"
        if lacking
        else "there is no DaemonSet for nodes of its kind yet"
    )
    return NodeTrouble(node=node.name, reason="NothingSuits", message=why)


def trouble_of(node: str, pod: Pod | None) -> NodeTrouble:
    """Why an operand is not ready on a node: a reason and a message."""
    if pod is None:
        return NodeTrouble(node=node, reason="PodMissing", message=_MISSING)
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if status.trouble and status.trouble not in _STARTING:
            reason, _, why = status.trouble.partition(": ")
            return NodeTrouble(node=node, reason=reason, message=_sentence(pod, f"{status.name}: {why or reason}"))
    if pod.deleting:
        return NodeTrouble(node=node, reason="Terminating", message=_sentence(pod, "it is being replaced"))
    if unscheduled := next((held for held in pod.status.conditions if _unscheduled(held)), None):
        reason = unscheduled.reason or "Unschedulable"
        return NodeTrouble(node=node, reason=reason, message=_sentence(pod, unscheduled.message or "no node takes it"))
    if pod.status.reason or pod.status.phase == "Failed":
        return NodeTrouble(
            node=node,
            reason=pod.status.reason or "PodFailed",
            message=_sentence(pod, pod.status.message or "it has failed"),
        )
    reason, what = _unfinished(pod)
    return NodeTrouble(node=node, reason=reason, message=_sentence(pod, what))


def _unfinished(pod: Pod) -> tuple[str, str]:
    """Why a pod without any failure is not ready yet."""
    for statuses in (pod.status.init_container_statuses, pod.status.container_statuses):
        first = next((status for status in statuses if not status.ready), None)
        if first is not None and first.state.waiting is not None:
            return _CREATING, f"{first.name} is being created; `kubectl describe pod` says what it waits for"
        if first is not None and statuses is pod.status.init_container_statuses:
            return "NotReady", f"{first.name} has not finished"
    if pod.containers_ready:
        return "NotReady", "its containers worked when they were last heard of, but its node does not answer"
    return "NotReady", "not all of its containers are ready"


def _sentence(pod: Pod, what: str) -> str:
    return f"Pod {pod.name}: {what}"[:1024]


def _untolerated(node: Node, tolerations: tuple[Toleration, ...]) -> str:
    """The first taint of a node that pods with these tolerations do not tolerate; empty if there is none."""
    taint = next((taint for taint in node.spec.taints if not _tolerated(taint, tolerations)), None)
    if taint is None:
        return ""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return taint.effect == "PreferNoSchedule" or any(toleration.tolerates(taint) for toleration in tolerations)


def _unscheduled(condition: PodCondition) -> bool:
    return condition.type == "PodScheduled" and condition.status == "False"
