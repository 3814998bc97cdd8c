"""What waits, looked up in the caches of the operator: one place for metrics and for Events."""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.objects import Object, controller_of
from gpu_control_plane.ray.owned import OF_CLUSTERS, RayPod, is_owned
from gpu_control_plane.ray.waiting.decide import (
    GroupWaiting,
    Waiting,
    cluster_why,
    job_waits,
    service_waits,
    waiting_groups,
)
from gpu_control_plane.ray.watched import Watched
from gpu_control_plane.rules.ray.gpus import LivePools

_OWNER: Final = "waiting-by-owner"


class Caches(Protocol):
    """As `RayComponents.caches`."""

    def __call__[T: Object](self, kind: type[T], selection: Selection = ..., /) -> Watched[T]: ...


class WaitingLookup:
    """The waiting of each object, as the caches show it now."""

    def __init__(self, caches: Caches, gpus: LivePools) -> None:
        self._gpus = gpus
        self.clusters = caches(RayCluster)
        self.jobs = caches(RayJob)
        self.services = caches(RayService)
        self.pods = caches(RayPod, OF_CLUSTERS)
        self.pods.index(_OWNER, _owner)

    def of_cluster(self, cluster: RayCluster) -> dict[str, GroupWaiting]:
        """By the name of the group."""
        pods = [pod for pod in self.pods.by_index(_OWNER, cluster.metadata.uid) if is_owned(pod, cluster)]
        return waiting_groups(pods, self._gpus.current.units)

    def of_job(self, job: RayJob) -> Waiting | None:
        return job_waits(job, self._why(job.status.ray_cluster_name, job.metadata.namespace))

    def of_service(self, service: RayService) -> Waiting | None:
        status = service.status
        served = status.pending_service_status or status.active_service_status
        return service_waits(service, self._why(served.ray_cluster_name if served else "", service.metadata.namespace))

    def waiting_in_clusters(self) -> Iterator[tuple[RayCluster, GroupWaiting]]:
        for cluster in self.clusters:
            yield from ((cluster, group) for group in self.of_cluster(cluster).values())

    def _why(self, name: str, namespace: str | None) -> str:
        cluster = self.clusters.get(name, namespace) if name else None
        return cluster_why(cluster, self.of_cluster(cluster) if cluster is not None else {})


def _owner(pod: RayPod) -> Iterable[str]:
    owner = controller_of(pod)
    return (owner.uid,) if owner is not None else ()
