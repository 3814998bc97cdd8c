"""Whether a DaemonSet runs wherever it should, and if not, on which nodes and why. Pure.

A DaemonSet that nobody has looked at yet has the same numbers as one that is wanted nowhere. So the numbers count only
when they speak of the present generation and cover every node that the DaemonSet selects.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node, Taint
from gpu_control_plane.api.nvidia.status import MAX_NODES_NAMED, NodeTrouble
from gpu_control_plane.operator.views import DaemonSet, OperandPod, PodCondition


class Toleration(msgspec.Struct, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def bears(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect):
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return (self.key, self.value) == (taint.key, taint.value)


def _exists(key: str, effect: str) -> Toleration:
    return Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect=effect)


ADDED: Final = (
    _exists("not-ready", "NoExecute"),
    _exists("unreachable", "NoExecute"),
    _exists("disk-pressure", "NoSchedule"),
    _exists("memory-pressure", "NoSchedule"),
    _exists("pid-pressure", "NoSchedule"),
    _exists("unschedulable", "NoSchedule"),
)
"""What Kubernetes lets all pods of DaemonSets tolerate. New pods do not come to a node that is not ready."""
ADDED_ON_HOST: Final = (_exists("network-unavailable", "NoSchedule"),)
"""What it adds for those that use the network of the host."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a DaemonSet stands."""

    ready: bool
    desired: int = 0
    available: int = 0
    message: str = ""
    troubles: tuple[NodeTrouble, ...] = ()


def standing(
    daemonset: DaemonSet, expected: Iterable[str], unready: Callable[[], Mapping[str, OperandPod | None]]
) -> Standing:
    """How a DaemonSet stands that should run on the nodes `expected`.

    `unready` gives those of its nodes on which it does not work, with the pod if there is one; it is asked only when
    the numbers say that there are some.
    """
    numbers, wanted = daemonset.status, set(expected)
    desired = max(numbers.desired_number_scheduled, len(wanted))
    available = min(numbers.number_available, desired)
    if numbers.observed_generation < daemonset.metadata.generation:
        return Standing(
            ready=False, desired=desired, available=0, message="its latest change has not been looked at yet"
        )
    if numbers.desired_number_scheduled < len(wanted):
        missing = len(wanted) - numbers.desired_number_scheduled
        return Standing(
            ready=False, desired=desired, available=available, message=f"{missing} nodes are not counted in yet"
        )
    if numbers.updated_number_scheduled == numbers.number_available == numbers.desired_number_scheduled:
        return Standing(ready=True, desired=desired, available=available)
    found = unready()
    troubles = [trouble_of(node, pod) for node, pod in sorted(found.items())[:MAX_NODES_NAMED]]
    old = numbers.desired_number_scheduled - numbers.updated_number_scheduled
    if old and not troubles:
        return Standing(
            ready=False, desired=desired, available=available, message=f"{old} pods are of an older version"
        )
    return Standing(
        ready=False,
        desired=desired,
        available=available,
        message=f"it runs on {available} of {desired} nodes",
        troubles=tuple(troubles),
    )


def nodes_for(selector: Mapping[str, str], tolerations: Iterable[Toleration], nodes: Iterable[Node]) -> list[str]:
    """Names of the nodes to which pods with this selector and these tolerations go."""
    borne = tuple(tolerations)
    return [
        node.name
        for node in nodes
        if not node.deleting
        and all(node.metadata.labels.get(key) == value for key, value in selector.items())
        and (not node.spec.taints or all(_bearable(taint, borne) for taint in node.spec.taints))
    ]


def trouble_of(node: str, pod: OperandPod | None) -> NodeTrouble:
    """Why an operand does not work on a node: one word and a sentence."""
    if pod is None:
        return NodeTrouble(node=node, reason="PodMissing", message="no pod has been made for the node yet")
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if status.trouble:
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
    waiting = [status.name for status in pod.status.init_container_statuses if not status.ready]
    where = f"{waiting[0]} has not finished" if waiting else "not all of its containers are ready"
    return NodeTrouble(node=node, reason="NotReady", message=_sentence(pod, where))


def _sentence(pod: OperandPod, what: str) -> str:
    return f"Pod {pod.name}: {what}"[:1024]


def _bearable(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return taint.effect == "PreferNoSchedule" or any(toleration.bears(taint) for toleration in tolerations)


def _unscheduled(condition: PodCondition) -> bool:
    return condition.type == "PodScheduled" and condition.status == "False"
