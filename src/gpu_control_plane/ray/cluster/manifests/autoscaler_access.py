"""What the autoscaler may do, and as whom."""

from typing import Any, Final

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import GROUP
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest
from gpu_control_plane.ray.cluster.manifests.labels import object_labels
from gpu_control_plane.ray.names import object_name

_RBAC: Final = "rbac.authorization.k8s.io"


def users_account(cluster: RayCluster) -> str:
    """The service account that the head's template names, which has to be there; empty if none."""
    name: str = (cluster.spec.head_group_spec.template.get("spec") or {}).get("serviceAccountName") or ""
    return name


def account_name(cluster: RayCluster) -> str:
    """The service account of the head's pod with autoscaling."""
    return users_account(cluster) or object_name(cluster.name)


def service_account(context: ClusterContext) -> Manifest | None:
    """The service account; None without autoscaling, and where the user names one."""
    if not context.cluster.spec.autoscales or users_account(context.cluster):
        return None
    return _object(context, "v1", "ServiceAccount", account_name(context.cluster))


def role(context: ClusterContext) -> Manifest | None:
    """What the autoscaler may do; None without autoscaling."""
    if not context.cluster.spec.autoscales:
        return None
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
        {"apiGroups": [GROUP], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
    ]
    return _object(context, f"{_RBAC}/v1", "Role", object_name(context.cluster.name), rules=rules)


def role_binding(context: ClusterContext) -> Manifest | None:
    """That the service account may do it; None without autoscaling."""
    if not context.cluster.spec.autoscales:
        return None
    name, account = object_name(context.cluster.name), account_name(context.cluster)
    return _object(
        context,
        f"{_RBAC}/v1",
        "RoleBinding",
        name,
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": context.namespace}],
        roleRef={"apiGroup": _RBAC, "kind": "Role", "name": name},
    )


def _object(context: ClusterContext, version: str, kind: str, name: str, **rest: Any) -> Manifest:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": context.namespace,
            "labels": object_labels(context),
            "ownerReferences": context.owner_references(),
        },
        **rest,
    }
