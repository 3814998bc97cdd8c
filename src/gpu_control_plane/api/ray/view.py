"""A RayCluster as people are shown it: of a cluster that another operator or release may run, little is read."""

from typing import ClassVar

import msgspec

from gpu_control_plane.kube.objects import Object, Resource


class ViewedSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    ray_version: str = ""


class ViewedStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    state: str = ""
    """`ready`, `suspended` or `failed`; empty while it starts."""
    reason: str = ""
    available_worker_replicas: int = 0
    desired_worker_replicas: int = 0
    desired_gpu: str = msgspec.field(name="desiredGPU", default="0")


class RayClusterView(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("ray.io", "v1", "RayCluster", "rayclusters")

    spec: ViewedSpec = ViewedSpec()
    status: ViewedStatus = ViewedStatus()
