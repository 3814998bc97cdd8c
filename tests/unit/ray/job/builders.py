"""RayJobs and what is seen of them, as small as a test needs them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.job import JobDeploymentStatus, JobStatus, RayJob
from gpu_control_plane.ray.dashboard.calls import Answer
from gpu_control_plane.ray.dashboard.errors import DashboardError
from gpu_control_plane.ray.dashboard.models import JobDetails
from gpu_control_plane.ray.job.snapshot import Snapshot

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEFORE = NOW - timedelta(seconds=60)
CLUSTER_SPEC: dict[str, Any] = {
    "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head", "image": "ray:2.60"}]}}},
    "workerGroupSpecs": [
        {"groupName": "gpu", "template": {"spec": {"containers": [{"name": "ray-worker", "image": "ray:2.60"}]}}}
    ],
}


def job(state: str = "", *, spec: dict[str, Any] | None = None, metadata: Any = None, **status: Any) -> RayJob:
    """A RayJob in a state; from Initializing on it has the names of its try."""
    begun = state in {"Initializing", "Waiting", "Running", "Complete", "Failed", "Suspending", "Retrying"}
    names = {"jobId": "demo-x1", "rayClusterName": "demo-x1", "startTime": BEFORE} if begun else {}
    if state in {"Complete", "Failed"}:
        names["endTime"] = NOW
    wire = {
        "metadata": {
            "name": "demo",
            "namespace": "team",
            "uid": "u1",
            "finalizers": ["ray.io/rayjob-finalizer"] if begun else [],
            **(metadata or {}),
        },
        "spec": {"entrypoint": "python job.py", "rayClusterSpec": CLUSTER_SPEC, **(spec or {})},
        "status": {"jobDeploymentStatus": state, **names, **status},
    }
    return msgspec.convert(wire, RayJob)


def selecting(state: str = "", *, spec: dict[str, Any] | None = None, **status: Any) -> RayJob:
    """A RayJob on a cluster that is there."""
    chosen = {"clusterSelector": {"ray.io/cluster": "shared"}, "rayClusterSpec": None}
    named = {"rayClusterName": "shared"} if state else {}
    return job(state, spec={**chosen, **(spec or {})}, **{**named, **status})


def cluster(state: str | None = "ready", *, deleting: bool = False, suspended: bool = False) -> RayCluster:
    """The RayCluster of the try."""
    spec = CLUSTER_SPEC
    if suspended:
        groups = [{**group, "suspend": True} for group in CLUSTER_SPEC["workerGroupSpecs"]]
        spec = {**CLUSTER_SPEC, "workerGroupSpecs": groups}
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "demo", "uid": "u1", "controller": True}
    wire = {
        "metadata": {
            "name": "demo-x1",
            "namespace": "team",
            "uid": "c1",
            "deletionTimestamp": NOW if deleting else None,
            "ownerReferences": [owner],
        },
        "spec": spec,
        "status": {"state": state} if state is not None else {},
    }
    return msgspec.convert(wire, RayCluster)


def answered(
    status: str | None, *, seconds_ago: float = 0, ended: datetime | None = None, message: str = ""
) -> Answer[JobDetails | None]:
    """What Ray has answered; None: it does not know the job."""
    since = NOW - timedelta(seconds=seconds_ago)
    details = None if status is None else JobDetails(status=JobStatus(status), end_time=ended, message=message)
    return Answer(value=details, at=NOW, since=since)


def failing(error: DashboardError, *, seconds: float) -> Answer[Any]:
    """Ray's dashboard has not answered for so long."""
    return Answer(error=error, at=NOW, since=NOW - timedelta(seconds=seconds))


def seen(given: RayJob, **more: Any) -> Snapshot:
    """A snapshot; a job that has begun has its cluster, unless the test says otherwise."""
    if "cluster" not in more and given.status.ray_cluster_name:
        more["cluster"] = cluster()
    if "own_clusters" not in more:
        own = more.get("cluster") if not given.spec.cluster_selector else None
        more["own_clusters"] = (own,) if own is not None else ()
    return Snapshot(job=given, now=NOW, suffix="abcde", **more)


def with_status(given: RayJob, **status: Any) -> RayJob:
    return replace(given, status=replace(given.status, **status))


def state_of(text: str) -> JobDeploymentStatus:
    return JobDeploymentStatus(text)
