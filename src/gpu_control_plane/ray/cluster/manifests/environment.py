"""Variables of the Ray container and of init containers."""

import copy
from typing import Final

from gpu_control_plane.api.ray.names import Label, NodeType
from gpu_control_plane.ray.cluster.manifests.containers import Part, default_env, field_env, put_env
from gpu_control_plane.ray.cluster.manifests.context import RAY_SERVICE, ClusterContext

START_COMMAND: Final = "KUBERAY_GEN_RAY_START_CMD"

_LOCAL: Final = "127.0.0.1"
_FOR_SERVICES: Final = {
    "RAY_timeout_ms_task_wait_for_death_info": "0",
    "RAY_gcs_server_request_timeout_seconds": "5",
    "RAY_SERVE_KV_TIMEOUT_S": "5",
}
"""Shorter times of waiting, so that a service notices sooner that a node is lost."""


def put_environment(container: Part, context: ClusterContext, node_type: NodeType, command: str) -> None:
    """Tell the Ray container where it is and how to reach the head."""
    for variable in context.options.default_container_envs:
        held = copy.deepcopy(dict(variable))
        default_env(container, held["name"], held.get("value", ""), held.get("valueFrom"))
    if node_type is NodeType.WORKER:
        put_head_address(container, context)
    field_env(container, "RAY_CLUSTER_NAME", f"metadata.labels['{Label.CLUSTER}']")
    field_env(container, "RAY_CLUSTER_NAMESPACE", "metadata.namespace")
    field_env(container, "RAY_CLOUD_INSTANCE_ID", "metadata.name")
    field_env(container, "RAY_NODE_TYPE_NAME", f"metadata.labels['{Label.GROUP}']")
    put_env(container, START_COMMAND, command)
    default_env(container, "RAY_PORT", context.gcs_port)
    if context.origin_kind == RAY_SERVICE:
        for name, value in _FOR_SERVICES.items():
            default_env(container, name, value)
    head = _LOCAL if node_type is NodeType.HEAD else context.head_host
    default_env(container, "RAY_ADDRESS", f"{head}:{context.gcs_port}")
    default_env(container, "RAY_USAGE_STATS_KUBERAY_IN_USE", "1")
    if node_type is NodeType.HEAD:
        tags = f"kuberay_version={context.options.version};kuberay_crd={context.origin_kind}"
        put_env(container, "RAY_USAGE_STATS_EXTRA_TAGS", tags)
    default_env(container, "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1")


def put_head_address(container: Part, context: ClusterContext) -> None:
    """Tell a container the head's address; the shorter one is for older programs."""
    put_env(container, "FQ_RAY_IP", context.head_host)
    put_env(container, "RAY_IP", context.head_service_name)
