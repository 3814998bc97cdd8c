"""The container that collects what Ray's history server shows."""

import copy
from typing import Any, Final

from gpu_control_plane.api.ray.names import NodeType
from gpu_control_plane.ray.cluster.manifests.authentication import put_token
from gpu_control_plane.ray.cluster.manifests.containers import Part, default_env, field_env, members, put_env
from gpu_control_plane.ray.cluster.manifests.context import RAY_CLUSTER, ClusterContext
from gpu_control_plane.ray.names import DASHBOARD_PORT

COLLECTOR: Final = "ray-history-collector"

_EVENT_PORT: Final = 8084
_EVENTS: Final = ",".join(
    f"{kind}_EVENT"
    for kind in (
        "TASK_DEFINITION",
        "TASK_LIFECYCLE",
        "ACTOR_TASK_DEFINITION",
        "TASK_PROFILE",
        "DRIVER_JOB_DEFINITION",
        "DRIVER_JOB_LIFECYCLE",
        "ACTOR_DEFINITION",
        "ACTOR_LIFECYCLE",
        "NODE_DEFINITION",
        "NODE_LIFECYCLE",
    )
)
_AGGREGATOR: Final = "RAY_DASHBOARD_AGGREGATOR_AGENT"


def add_collector(spec: Part, context: ClusterContext, node_type: NodeType) -> Part | None:
    """Put the collector into a pod, if the spec asks for it; it is returned, so that it can be given Ray's logs."""
    history = context.cluster.spec.history_server_options
    options = history.collector_options if history is not None else None
    if options is None:
        return None
    container: dict[str, Any] = {
        "name": COLLECTOR,
        "image": options.image,
        "imagePullPolicy": options.image_pull_policy or "IfNotPresent",
        "resources": copy.deepcopy(options.resources)
        or {
            "limits": {"cpu": "200m", "memory": "256Mi"},
            "requests": {"cpu": "50m", "memory": "64Mi"},
        },
    }
    field_env(container, "POD_IP", "status.podIP")
    put_env(container, "RAY_CLUSTER_NAME", context.cluster.name)
    put_env(container, "RAY_CLUSTER_NAMESPACE", context.namespace)
    put_env(container, "RAY_ROLE", node_type.value.capitalize())
    put_env(container, "EVENTS_PORT", str(_EVENT_PORT))
    put_env(container, "FQ_RAY_IP", context.head_host)
    if context.origin_kind != RAY_CLUSTER:
        put_env(container, "OWNER_KIND", context.origin_kind)
    if context.origin_name:
        put_env(container, "OWNER_NAME", context.origin_name)
    if node_type is NodeType.HEAD:
        put_env(container, "RAY_DASHBOARD_ADDRESS", f"http://localhost:{DASHBOARD_PORT}")
    for variable in options.env:
        put_env(container, variable["name"], variable.get("value", ""), copy.deepcopy(variable.get("valueFrom")))
    put_token(container, context)
    members(spec, "containers").append(container)
    return container


def put_event_export(ray: Part) -> None:
    """Let Ray send its events to the collector of its pod."""
    default_env(ray, "RAY_enable_ray_event", "true")
    default_env(ray, "RAY_enable_core_worker_ray_event_to_aggregator", "true")
    default_env(ray, f"{_AGGREGATOR}_EVENTS_EXPORT_ADDR", f"http://localhost:{_EVENT_PORT}/v1/events")
    default_env(ray, f"{_AGGREGATOR}_EXPOSABLE_EVENT_TYPES", _EVENTS)
    default_env(ray, f"{_AGGREGATOR}_PUBLISHER_HTTP_ENDPOINT_EXPOSABLE_EVENT_TYPES", _EVENTS)
