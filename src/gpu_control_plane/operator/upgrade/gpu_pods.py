"""Which pods of a node use a GPU, and which of them may be made to leave. Pure."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.nvidia.names import TRUE, PodLabel
from gpu_control_plane.api.selectors import LabelSelector
from gpu_control_plane.operator.views import Pod

_PREFIXES: Final = ("nvidia.com/gpu", "nvidia.com/mig-", f"{GROUP}/")
_MIRROR: Final = "kubernetes.io/config.mirror"
_NAMED: Final = 5


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a person allows to be lost."""

    force: bool
    """Also pods that no controller would replace."""
    delete_empty_dir: bool


def at_work(pod: Pod) -> bool:
    return pod.status.phase in {"Running", "Pending"}


def uses_gpu(pod: Pod, pool_resources: AbstractSet[str] = frozenset()) -> bool:
    """Whether one of its containers asks for a card, or for a part of one, or the pod claims a device."""
    return bool(pod.spec.resource_claims) or any(
        name.startswith(_PREFIXES) or name in pool_resources
        for container in pod.spec.all_containers
        for name in container.asks_for
    )


def comes_back(pod: Pod) -> bool:
    """Whether the pod belongs to the node itself: a DaemonSet, or the kubelet, would start it there again at once."""
    owner = pod.controller
    return (owner is not None and owner.kind == "DaemonSet") or _MIRROR in pod.metadata.annotations


def gpu_users(pods: Iterable[Pod], pool_resources: AbstractSet[str]) -> list[Pod]:
    """Pods at work that have to leave before a driver can be replaced."""
    return [pod for pod in pods if at_work(pod) and not comes_back(pod) and uses_gpu(pod, pool_resources)]


def drained(pods: Iterable[Pod], selector: LabelSelector) -> list[Pod]:
    """Pods at work that a drain makes leave."""
    return [pod for pod in pods if at_work(pod) and not comes_back(pod) and _drainable(pod, selector)]


def keeps_away_drains(pod: Pod) -> bool:
    return pod.metadata.labels.get(PodLabel.DRAIN_SKIP) == TRUE


def obstacle(pod: Pod, rules: Rules) -> str | None:
    """Why the pod may not be made to leave; None if it may. One that is leaving already needs no permission."""
    if pod.deleting:
        return None
    if pod.controller is None and not rules.force:
        return "no controller would replace it (allow it with `force`)"
    if any(volume.empty_dir is not None for volume in pod.spec.volumes) and not rules.delete_empty_dir:
        return "it has an emptyDir, whose data would be lost (allow it with `deleteEmptyDir`)"
    return None


def names(pods: Iterable[Pod]) -> str:
    """Some pods by name, for a sentence."""
    found = sorted(str(pod.key) for pod in pods)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _drainable(pod: Pod, selector: LabelSelector) -> bool:
    return selector.matches(pod.metadata.labels) and not keeps_away_drains(pod)
