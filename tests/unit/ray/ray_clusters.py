"""RayClusters as short as tests need them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.ray.cluster.manifests import ClusterContext, ReplicaIdentity, head_pod, worker_pod
from gpu_control_plane.rules.ray.gpus import PoolFacts, PoolResources

UID = "0d1e9f5a-7c1b-4b52-9c3d-1f2e3a4b5c6d"
Json = dict[str, Any]


def template(limits: Json | None = None, requests: Json | None = None, **container: Any) -> Json:
    """A template with one container that runs Ray."""
    resources: Json = {}
    if limits is not None:
        resources["limits"] = dict(limits)
    if requests is not None:
        resources["requests"] = dict(requests)
    ray: Json = {"name": "ray", "image": "rayproject/ray:2.52.0", **container}
    if resources:
        ray["resources"] = resources
    return {"spec": {"containers": [ray]}}


def group(name: str = "workers", template: Json | None = None, **rest: Any) -> Json:
    """A worker group."""
    return {"groupName": name, "template": template or globals()["template"](), "replicas": 1, **rest}


def ray_cluster(
    *groups: Json,
    head: Json | None = None,
    name: str = "rc",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> RayCluster:
    """A RayCluster in the namespace `ns`."""
    body = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": UID,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "headGroupSpec": {"template": template(), **(head or {})},
            "workerGroupSpecs": list(groups),
            **spec,
        },
    }
    return msgspec.convert(body, RayCluster)


def gpu_pool(name: str, status: Json | None = None, **spec: Any) -> GPUPool:
    """A GPUPool."""
    return msgspec.convert({"metadata": {"name": name}, "spec": spec, "status": status or {}}, GPUPool)


def pools(*held: GPUPool) -> PoolResources:
    return PoolResources(map(PoolFacts.of, held))


def worker_of(context: ClusterContext, identity: ReplicaIdentity | None = None) -> Json:
    """A pod of the first group."""
    return worker_pod(context, context.cluster.spec.worker_group_specs[0], identity or ReplicaIdentity())


def head_of(context: ClusterContext) -> Json:
    return head_pod(context)


def ray_of(pod: Json) -> Json:
    """The Ray container of a pod."""
    found: Json = pod["spec"]["containers"][0]
    return found


def env_of(container: Json) -> dict[str, str]:
    """The variables of a container that have a value."""
    return {held["name"]: held["value"] for held in container.get("env", ()) if "value" in held}


def container_of(pod: Json, name: str, kind: str = "containers") -> Json:
    """A container by its name."""
    found: Json = next(held for held in pod["spec"].get(kind, ()) if held["name"] == name)
    return found
