"""A RayCluster of KubeRay as the console shows it: another project's kind, of which only the status is read."""

from typing import ClassVar

import msgspec

from gpu_control_plane.kube.objects import Object, Resource


class RayClusterSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    ray_version: str = ""


class RayClusterStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    state: str = ""
    """`ready`, `suspended` or `failed`; empty while it starts."""
    reason: str = ""
    available_worker_replicas: int = 0
    desired_worker_replicas: int = 0
    desired_gpu: str = msgspec.field(name="desiredGPU", default="0")


class RayCluster(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("ray.io", "v1", "RayCluster", "rayclusters")

    spec: RayClusterSpec = RayClusterSpec()
    status: RayClusterStatus = RayClusterStatus()
