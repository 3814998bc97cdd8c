"""Objects of Ray of which little is read: they may be another operator's or release's, and have other types.

A RayCluster as people are shown it, and of every kind its metadata.
"""

from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.ray.names import GROUP, VERSION
from gpu_control_plane.kube.objects import Object, Resource


class AnyRayCluster(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "RayCluster", "rayclusters")


class AnyRayJob(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "RayJob", "rayjobs")


class AnyRayService(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "RayService", "rayservices")


class AnyRayCronJob(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "RayCronJob", "raycronjobs")


ANY: Final[tuple[type[Object], ...]] = (AnyRayCluster, AnyRayJob, AnyRayService, AnyRayCronJob)
"""Every kind, by its metadata."""


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
    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "RayCluster", "rayclusters")

    spec: ViewedSpec = ViewedSpec()
    status: ViewedStatus = ViewedStatus()
