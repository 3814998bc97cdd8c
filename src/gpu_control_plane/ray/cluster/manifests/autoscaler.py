"""Ray's autoscaler, a container beside the head's. It changes the RayCluster, and the operator makes the pods."""

import copy
from typing import Any, Final

from gpu_control_plane.api.ray.cluster import AutoscalerVersion
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.ray.cluster.manifests.authentication import put_token
from gpu_control_plane.ray.cluster.manifests.autoscaler_access import account_name
from gpu_control_plane.ray.cluster.manifests.containers import (
    Part,
    equal_resources,
    field_env,
    members,
    put_env,
    ray_container,
)
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext
from gpu_control_plane.ray.cluster.manifests.features import autoscaler_version, uses_tls
from gpu_control_plane.ray.cluster.manifests.start_command import shell
from gpu_control_plane.ray.cluster.manifests.tls import put_tls_files
from gpu_control_plane.rules.ray.autoscaling import START_COMMAND_ENV, V2_ENV

AUTOSCALER: Final = "autoscaler"

_COMMAND: Final = (
    "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
)


def add_autoscaler(spec: Part, context: ClusterContext) -> None:
    """Put the autoscaler into the head's pod."""
    ray = ray_container(spec)
    spec["serviceAccountName"] = account_name(context.cluster)
    container: dict[str, Any] = {
        "name": AUTOSCALER,
        "image": ray.get("image", ""),
        "imagePullPolicy": "IfNotPresent",
        "command": shell(context.options),
        "args": [_COMMAND],
        "resources": equal_resources("500m", "512Mi"),
    }
    field_env(container, "RAY_CLUSTER_NAME", f"metadata.labels['{Label.CLUSTER}']")
    field_env(container, "RAY_CLUSTER_NAMESPACE", "metadata.namespace")
    field_env(container, "RAY_HEAD_POD_NAME", "metadata.name")
    put_env(container, "KUBERAY_CRD_VER", "v1")
    put_env(container, START_COMMAND_ENV, _COMMAND)
    put_token(container, context)
    if uses_tls(context.cluster.spec):
        put_tls_files(container)
    _override(container, context)
    members(spec, "containers").append(container)
    match autoscaler_version(context.cluster.spec):
        case AutoscalerVersion.V2:
            put_env(ray, V2_ENV, "true")
            spec["restartPolicy"] = "Never"  # An instance of version 2 is a pod that has not restarted.
        case AutoscalerVersion.V1:
            put_env(ray, V2_ENV, "false")
        case _:
            pass


def _override(container: Part, context: ClusterContext) -> None:
    """What the user says in `autoscalerOptions`."""
    options = context.cluster.spec.autoscaler_options
    if options is None:
        return
    given: dict[str, Any] = {
        "resources": options.resources,
        "image": options.image or None,
        "imagePullPolicy": options.image_pull_policy or None,
        "securityContext": options.security_context,
        "command": list(options.command) or None,
        "args": list(options.args) or None,
    }
    container.update({name: copy.deepcopy(value) for name, value in given.items() if value is not None})
    for variable in options.env:
        put_env(container, variable["name"], variable.get("value", ""), copy.deepcopy(variable.get("valueFrom")))
    if options.env_from:
        members(container, "envFrom").extend(copy.deepcopy(list(options.env_from)))
    if options.volume_mounts:
        members(container, "volumeMounts").extend(copy.deepcopy(list(options.volume_mounts)))
