"""Pods of a RayCluster: the user's template, and all that makes its first container a node of Ray."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_control_plane.api.ray.cluster import AutoscalerVersion, GroupSpec, WorkerGroupSpec
from gpu_control_plane.api.ray.names import HEAD_GROUP, Annotation, NodeType
from gpu_control_plane.ray.cluster.manifests.authentication import add_token_volume, put_token
from gpu_control_plane.ray.cluster.manifests.autoscaler import add_autoscaler
from gpu_control_plane.ray.cluster.manifests.containers import Part, entries, members, port_named, ray_container
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest, ReplicaIdentity
from gpu_control_plane.ray.cluster.manifests.environment import put_environment, put_head_address
from gpu_control_plane.ray.cluster.manifests.fault_tolerance import (
    put_head_fault_tolerance,
    put_worker_fault_tolerance,
)
from gpu_control_plane.ray.cluster.manifests.features import autoscaler_version, keeps_own_command
from gpu_control_plane.ray.cluster.manifests.hashes import recreate_hash
from gpu_control_plane.ray.cluster.manifests.history import add_collector, put_event_export
from gpu_control_plane.ray.cluster.manifests.init_containers import WAIT_FOR_GCS, add_wait_for_gcs
from gpu_control_plane.ray.cluster.manifests.labels import head_labels, worker_labels
from gpu_control_plane.ray.cluster.manifests.placement import keep_together
from gpu_control_plane.ray.cluster.manifests.probes import put_probes
from gpu_control_plane.ray.cluster.manifests.start_command import put_command, start_command
from gpu_control_plane.ray.cluster.manifests.start_params import (
    METRICS_PORT,
    head_params,
    with_resources,
    worker_params,
)
from gpu_control_plane.ray.cluster.manifests.template_hash import template_hash
from gpu_control_plane.ray.cluster.manifests.tls import put_tls
from gpu_control_plane.ray.cluster.manifests.volumes import mount_logs, mount_shared_memory
from gpu_control_plane.ray.names import pod_prefix
from gpu_control_plane.rules.ray.filled_gpus import as_written


def head_pod(context: ClusterContext) -> Manifest:
    """The head. It has a name only where the options or its template give it one."""
    template = _template(context.cluster.spec.head_group_spec)
    spec, metadata = template["spec"], template["metadata"]
    ray = ray_container(spec)
    prefix = pod_prefix(context.cluster.name, HEAD_GROUP, NodeType.HEAD)
    if context.options.deterministic_head_name:
        metadata["name"] = prefix.removesuffix("-")
    else:
        metadata["generateName"] = prefix
    autoscaling = context.cluster.spec.autoscales
    if autoscaling:
        add_autoscaler(spec, context)
    autoscaler = spec["containers"][-1] if autoscaling else None
    put_head_fault_tolerance(template, ray, context)
    metadata["annotations"] |= {
        Annotation.RECREATE_HASH.value: recreate_hash(as_written(context.cluster)),
        Annotation.KUBERAY_VERSION.value: context.options.version,
        Annotation.TEMPLATE_HASH.value: template_hash(context.cluster),
    }
    params = with_resources(head_params(context), context, spec)
    beside = (autoscaler,) if autoscaler is not None else ()
    _finish(template, context, NodeType.HEAD, params, beside)
    members(spec, "containers").extend(copy.deepcopy([dict(each) for each in context.options.head_sidecars]))
    return _pod(template, context, head_labels(context), HEAD_GROUP)


def worker_pod(context: ClusterContext, group: WorkerGroupSpec, identity: ReplicaIdentity) -> Manifest:
    """A worker. The API server completes its name."""
    template = _template(group)
    spec, metadata = template["spec"], template["metadata"]
    metadata.pop("name", None)
    metadata["generateName"] = pod_prefix(context.cluster.name, group.group_name, NodeType.WORKER)
    metadata["annotations"][Annotation.TEMPLATE_HASH.value] = template_hash(context.cluster, group)
    if context.options.init_container:
        add_wait_for_gcs(spec, context)
    put_worker_fault_tolerance(ray_container(spec), context)
    if autoscaler_version(context.cluster.spec) is AutoscalerVersion.V2:
        spec["restartPolicy"] = "Never"
    params = with_resources(worker_params(context, group), context, spec)
    _finish(template, context, NodeType.WORKER, params)
    keep_together(spec, context, group.group_name)
    members(spec, "containers").extend(copy.deepcopy([dict(each) for each in context.options.worker_sidecars]))
    return _pod(template, context, worker_labels(context, group, identity), group.group_name)


def _template(group: GroupSpec) -> dict[str, Any]:
    """A copy of the user's template that has the parts which are filled in."""
    template = copy.deepcopy(group.template)
    entries(entries(template, "metadata"), "annotations")
    entries(template, "spec")
    return template


def _finish(
    template: Part, context: ClusterContext, node_type: NodeType, params: Mapping[str, str], beside: Sequence[Part] = ()
) -> None:
    """What head and workers have in common: security, volumes, the command, variables and probes."""
    spec = template["spec"]
    ray = ray_container(spec)
    if port_named(ray, "metrics") is None:
        members(ray, "ports").append({"name": "metrics", "containerPort": int(METRICS_PORT)})
    put_token(ray, context)
    add_token_volume(spec, context)
    for container in spec.get("initContainers") or ():
        if container.get("name") == WAIT_FOR_GCS:
            put_token(container, context)
    put_tls(spec, context, node_type)
    collector = add_collector(spec, context, node_type)
    if "plasma-directory" not in params:
        mount_shared_memory(spec, ray)
    log_readers = (*beside, *((collector,) if collector is not None else ()))
    if log_readers:
        mount_logs(spec, ray, *log_readers)
    annotations = template["metadata"]["annotations"]
    if keeps_own_command(context.cluster):
        annotations[Annotation.OVERWRITE_COMMAND.value] = "true"
    command = start_command(params, head=node_type is NodeType.HEAD)
    keep = annotations.get(Annotation.OVERWRITE_COMMAND.value, "").lower() == "true"
    put_command(ray, command, context.options, keep=keep)
    for container in spec.get("initContainers") or ():
        put_head_address(container, context)
    put_environment(ray, context, node_type, command)
    if collector is not None:
        put_event_export(ray)
    if context.options.probes:
        put_probes(ray, context, node_type, params)


def _pod(template: Part, context: ClusterContext, labels: Mapping[str, str], group: str) -> Manifest:
    scheduling_fields = context.group_scheduling_fields(group)
    metadata, spec = template["metadata"], template["spec"]
    if scheduling_fields.scheduler_name:
        spec["schedulerName"] = scheduling_fields.scheduler_name
    names = {key: metadata[key] for key in ("name", "generateName", "finalizers") if metadata.get(key)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **names,
            "namespace": context.namespace,
            "labels": {**labels, **scheduling_fields.labels},
            "annotations": {
                **context.options.default_pod_annotations,
                **metadata["annotations"],
                **scheduling_fields.annotations,
            },
            "ownerReferences": context.owner_references(),
        },
        "spec": spec,
    }
