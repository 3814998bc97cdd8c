"""Which pods of a node use a GPU, and which of them may be evicted. Pure."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.nvidia.names import TRUE, PodLabel
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.api.selectors import LabelSelector

_PREFIXES: Final = ("nvidia.com/gpu", "nvidia.com/mig-", f"{GROUP}/")
_MIRROR: Final = "kubernetes.io/config.mirror"
_MOST_NAMED: Final = 5


class EvictionRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy allows to be lost."""

    force: bool
    """Also evict pods that no controller would replace."""
    delete_empty_dir: bool


def is_active(pod: Pod) -> bool:
    return pod.status.phase in {"Running", "Pending"}


def uses_gpu(pod: Pod, pool_resources: AbstractSet[str] = frozenset()) -> bool:
    """Whether one of its containers requests a card or a part of one, or the pod has a resource claim."""
    return bool(pod.spec.resource_claims) or any(
        name.startswith(_PREFIXES) or name in pool_resources
        for container in pod.spec.all_containers
        for name in container.resource_names
    )


def is_node_pod(pod: Pod) -> bool:
    """Whether the pod belongs to the node: a DaemonSet, or the kubelet, would start it there again at once."""
    owner = pod.controller
    return (owner is not None and owner.kind == "DaemonSet") or _MIRROR in pod.metadata.annotations


def gpu_pods(pods: Iterable[Pod], pool_resources: AbstractSet[str]) -> list[Pod]:
    """Running or pending pods that have to be evicted before a driver can be replaced."""
    return [pod for pod in pods if is_active(pod) and not is_node_pod(pod) and uses_gpu(pod, pool_resources)]


def pods_to_drain(pods: Iterable[Pod], selector: LabelSelector) -> list[Pod]:
    """Running or pending pods that a drain evicts."""
    return [pod for pod in pods if is_active(pod) and not is_node_pod(pod) and _drainable(pod, selector)]


def skips_drain(pod: Pod) -> bool:
    return pod.metadata.labels.get(PodLabel.DRAIN_SKIP) == TRUE


def eviction_problem(pod: Pod, rules: EvictionRules) -> str | None:
    """Why the pod may not be evicted; None if it may. One that is leaving already needs no permission."""
    if pod.deleting:
        return None
    if pod.controller is None and not rules.force:
        return "no controller would replace it (allow it with `force`)"
    if any(volume.empty_dir is not None for volume in pod.spec.volumes) and not rules.delete_empty_dir:
        return "it has an emptyDir, whose data would be lost (allow it with `deleteEmptyDir`)"
    return None


def pod_names(pods: Iterable[Pod]) -> str:
    """The first pods by name, for a sentence."""
    found = sorted(str(pod.key) for pod in pods)
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(found[:_MOST_NAMED]) + more


def _drainable(pod: Pod, selector: LabelSelector) -> bool:
    return selector.matches(pod.metadata.labels) and not skips_drain(pod)
