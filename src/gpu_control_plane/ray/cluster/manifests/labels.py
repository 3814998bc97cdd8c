"""Labels of pods, and of what is beside them."""

from collections.abc import Mapping
from typing import Final

from gpu_control_plane.api.ray.cluster import GroupSpec, WorkerGroupSpec
from gpu_control_plane.api.ray.names import CREATED_BY, HEAD_GROUP, Label, NodeType
from gpu_control_plane.ray.cluster.manifests.context import RAY_SERVICE, ClusterContext, ReplicaIdentity
from gpu_control_plane.ray.names import identifier

APP_NAME: Final = "kuberay"

_OURS: Final = frozenset({Label.CLUSTER.value, Label.NODE_TYPE.value, Label.GROUP.value})
"""Labels by which pods are found: no template changes them."""
_SELECTED: Final = (Label.CLUSTER, Label.NODE_TYPE, Label.IDENTIFIER, Label.APP_NAME, Label.CREATED_BY)


def object_labels(context: ClusterContext, **more: str) -> dict[str, str]:
    """Labels of objects beside pods."""
    return {
        Label.CLUSTER.value: context.cluster.name,
        Label.APP_NAME.value: APP_NAME,
        Label.CREATED_BY.value: CREATED_BY,
    } | more


def head_labels(context: ClusterContext) -> dict[str, str]:
    """Labels of the head's pod."""
    labels = _pod_labels(context, NodeType.HEAD, HEAD_GROUP, context.cluster.spec.head_group_spec)
    if context.origin_kind == RAY_SERVICE:
        labels[Label.SERVE.value] = "false"
    return labels


def worker_labels(context: ClusterContext, group: WorkerGroupSpec, identity: ReplicaIdentity) -> dict[str, str]:
    """Labels of a worker's pod."""
    labels = _pod_labels(context, NodeType.WORKER, group.group_name, group)
    labels[Label.REPLICA_INDEX.value] = str(identity.index)
    if group.num_of_hosts > 1:
        labels[Label.REPLICA_NAME.value] = identity.name
        labels[Label.HOST_INDEX.value] = str(identity.host)
    if context.origin_kind == RAY_SERVICE:
        labels[Label.SERVE.value] = "true"
    return labels


def head_selector(context: ClusterContext) -> dict[str, str]:
    """Labels by which the head's Service finds its pod, as the pod has them: the user may have changed some."""
    labels = head_labels(context)
    return {label.value: labels[label.value] for label in _SELECTED}


def _pod_labels(context: ClusterContext, node_type: NodeType, group_name: str, group: GroupSpec) -> dict[str, str]:
    cluster = context.cluster.name
    ours = {
        Label.IS_RAY_NODE.value: "yes",
        Label.CLUSTER.value: cluster,
        Label.NODE_TYPE.value: node_type.value,
        Label.GROUP.value: group_name,
        Label.IDENTIFIER.value: identifier(cluster, node_type),
        Label.APP_NAME.value: APP_NAME,
        Label.CREATED_BY.value: CREATED_BY,
    }
    template: Mapping[str, str] = (group.template.get("metadata") or {}).get("labels") or {}
    given = {key: value for key, value in {**template, **group.labels}.items() if key not in _OURS}
    return {**context.options.default_pod_labels, **ours, **given}
