"""Metrics of Ray: KubeRay's, with its names and labels, and what alerts need beside them.

They are made from the caches when they are asked for, so nothing has to be forgotten. The leader alone has them, and
none while KubeRay's operator is active: a sum over all processes, which KubeRay's dashboards show, stays right.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpu_control_plane.api.ray.cluster import ClusterCondition
from gpu_control_plane.api.ray.job import JobDeploymentStatus, RayJob
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.api.ray.service import ServiceCondition
from gpu_control_plane.kube.conditions import TRUE, find
from gpu_control_plane.kube.objects import Condition, Object
from gpu_control_plane.ray.waiting.lookup import WaitingLookup

_OBJECT: Final = ("name", "namespace", "uid")
_GAUGES: Final = {
    "kuberay_cluster_info": ("1 for each RayCluster, with the kind that made it.", (*_OBJECT, "owner_kind")),
    "kuberay_cluster_condition_provisioned": (
        "1 for each RayCluster, with whether all its pods have been up at once.",
        (*_OBJECT, "condition"),
    ),
    "kuberay_cluster_provisioned_duration_seconds": (
        "How long it took from the creation of a RayCluster until all its pods had been up.",
        _OBJECT,
    ),
    "kuberay_job_info": ("1 for each RayJob.", _OBJECT),
    "kuberay_job_deployment_status": ("1 for the status that a RayJob is in.", (*_OBJECT, "deployment_status")),
    "kuberay_job_execution_duration_seconds": (
        "How long the last try of a RayJob took that has ended.",
        (*_OBJECT, "job_deployment_status", "retry_count"),
    ),
    "kuberay_service_info": ("1 for each RayService.", _OBJECT),
    "kuberay_service_condition_ready": ("1 for each RayService, with whether it is ready.", (*_OBJECT, "condition")),
    "kuberay_service_condition_upgrade_in_progress": (
        "1 for each RayService, with whether a second cluster of it is coming up.",
        (*_OBJECT, "condition"),
    ),
    "gpu_ray_workers_waiting": (
        "Workers of a group that ask for cards and have no node yet.",
        ("namespace", "cluster", "group"),
    ),
    "gpu_ray_job_waiting_since_timestamp_seconds": (
        "Since when a RayJob has waited that is meant to run and does not.",
        ("namespace", "name"),
    ),
    "gpu_ray_service_not_ready_since_timestamp_seconds": (
        "Since when a RayService has not answered that is meant to.",
        ("namespace", "name"),
    ),
}
_ENDED: Final = frozenset({JobDeploymentStatus.COMPLETE, JobDeploymentStatus.FAILED})

type _Sample = tuple[str, Sequence[str], float]


class RayMetrics(Collector):
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry, lookup: WaitingLookup, shown: Callable[[], bool]) -> None:
        """`shown` says whether this process is the one that counts."""
        self._lookup = lookup
        self._shown = shown
        registry.register(self)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Which metrics there are; without samples."""
        return _families().values()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        families = _families()
        if self._shown():
            for name, labels, value in self._samples():
                families[name].add_metric(labels, value)
        return families.values()

    def _samples(self) -> Iterator[_Sample]:
        yield from self._of_clusters()
        yield from self._of_jobs()
        yield from self._of_services()

    def _of_clusters(self) -> Iterator[_Sample]:
        for cluster in self._lookup.clusters:
            held, about = cluster.status.conditions, _about(cluster)
            owner = cluster.metadata.labels.get(Label.ORIGINATED_FROM_KIND, "None")
            provisioned = find(held, ClusterCondition.PROVISIONED)
            yield "kuberay_cluster_info", (*about, owner), 1
            yield "kuberay_cluster_condition_provisioned", (*about, _word(provisioned)), 1
            took = _seconds(cluster.metadata.creation_timestamp, _since(provisioned))
            if took is not None:
                yield "kuberay_cluster_provisioned_duration_seconds", about, took
        for cluster, group in self._lookup.waiting_in_clusters():
            labels = (cluster.metadata.namespace or "", cluster.name, group.group)
            yield "gpu_ray_workers_waiting", labels, group.workers

    def _of_jobs(self) -> Iterator[_Sample]:
        for job in self._lookup.jobs:
            status, about = job.status, _about(job)
            yield "kuberay_job_info", about, 1
            yield "kuberay_job_deployment_status", (*about, status.job_deployment_status), 1
            took = _seconds(status.start_time, status.end_time)
            if status.job_deployment_status in _ENDED and took is not None:
                labels = (*about, status.job_deployment_status, str(_retries(job)))
                yield "kuberay_job_execution_duration_seconds", labels, took
            if (waiting := self._lookup.of_job(job)) is not None:
                yield "gpu_ray_job_waiting_since_timestamp_seconds", _place(job), waiting.since.timestamp()

    def _of_services(self) -> Iterator[_Sample]:
        for service in self._lookup.services:
            held, about = service.status.conditions, _about(service)
            yield "kuberay_service_info", about, 1
            for name, kind in (
                ("kuberay_service_condition_ready", ServiceCondition.READY),
                ("kuberay_service_condition_upgrade_in_progress", ServiceCondition.UPGRADE_IN_PROGRESS),
            ):
                yield name, (*about, _word(find(held, kind))), 1
            if (waiting := self._lookup.of_service(service)) is not None:
                yield "gpu_ray_service_not_ready_since_timestamp_seconds", _place(service), waiting.since.timestamp()


def _families() -> dict[str, GaugeMetricFamily]:
    return {name: GaugeMetricFamily(name, text, labels=labels) for name, (text, labels) in _GAUGES.items()}


def _about(item: Object) -> tuple[str, str, str]:
    return item.name, item.metadata.namespace or "", item.metadata.uid


def _place(item: Object) -> tuple[str, str]:
    return item.metadata.namespace or "", item.name


def _word(condition: Condition | None) -> str:
    return "true" if condition is not None and condition.status == TRUE else "false"


def _since(condition: Condition | None) -> datetime | None:
    return condition.last_transition_time if condition is not None and condition.status == TRUE else None


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return max((end - begin).total_seconds(), 0.0) if begin is not None and end is not None else None


def _retries(job: RayJob) -> int:
    """Tries before the last one: a failed one counts itself as soon as it has failed."""
    failed = job.status.failed
    return failed - 1 if job.status.job_deployment_status is JobDeploymentStatus.FAILED and failed else failed
