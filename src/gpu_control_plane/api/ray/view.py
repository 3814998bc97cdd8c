"""Objects of Ray of which little is read: they may be another operator's or release's, and have other types.

Clusters, jobs and services as people are shown them, and of every kind its metadata.
"""

from datetime import datetime
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.ray.names import GROUP, VERSION
from gpu_control_plane.kube.objects import Condition, Object, Resource


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
    conditions: tuple[Condition, ...] = ()


class RayClusterView(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "RayCluster", "rayclusters")

    spec: ViewedSpec = ViewedSpec()
    status: ViewedStatus = ViewedStatus()


class ViewedJobStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    job_status: str = ""
    job_deployment_status: str = ""
    ray_cluster_name: str = ""
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    job_status_check_failure_start_time: datetime | None = None


class RayJobView(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "RayJob", "rayjobs")

    status: ViewedJobStatus = ViewedJobStatus()


class ViewedServed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    ray_cluster_name: str = ""


class ViewedServiceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    num_serve_endpoints: int = 0
    active_service_status: ViewedServed | None = None
    pending_service_status: ViewedServed | None = None
    conditions: tuple[Condition, ...] = ()


class RayServiceView(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "RayService", "rayservices")

    status: ViewedServiceStatus = ViewedServiceStatus()
