"""What keeps a RayCluster from going until its keys in Redis are gone. Pure.

Ray's GCS keeps the state of a fault-tolerant cluster in Redis. When the cluster is deleted, its pods go first, the head
has ended, and then a Job removes the keys. Whatever becomes of that, the cluster goes after a time.
"""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Annotation, Finalizer
from gpu_control_plane.ray.cluster.manifests import GcsBackend, gcs_backend
from gpu_control_plane.ray.cluster.worker_groups import Removal, Why
from gpu_control_plane.ray.owned import OwnedJob, RayPod
from gpu_control_plane.rules.ray.groups import head_faults
from gpu_control_plane.rules.ray.problem import problems_of, sentences


class NextStep(StrEnum):
    """What a cluster that is being deleted needs next."""

    NOTHING = "nothing"
    """Its objects go with it, by Kubernetes' garbage collector."""
    WAIT = "wait"
    CREATE_JOB = "create job"
    REMOVE_FINALIZER = "remove finalizer"
    FORCE = "force"
    """Remove the finalizer, and warn that its keys may still be there."""


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done for a cluster that is being deleted."""

    step: NextStep
    removals: tuple[Removal, ...] = ()
    why: str = ""
    """Why keys may be left in Redis: the end of a sentence."""
    again_at: datetime | None = None


def needs_redis_cleanup(cluster: RayCluster) -> bool:
    """Whether Ray keeps state of the cluster in Redis."""
    return gcs_backend(cluster) in (GcsBackend.REDIS, GcsBackend.REDIS_OF_USER)


def plan_deletion(
    cluster: RayCluster, pods: tuple[RayPod, ...], job: OwnedJob | None, *, now: datetime, default_timeout: timedelta
) -> Deletion:
    """The next step of a deletion. `pods` are those that still exist, `job` is the one that removes the keys."""
    if Finalizer.REDIS_CLEANUP not in cluster.metadata.finalizers:
        return Deletion(step=NextStep.NOTHING)
    began = cluster.metadata.deletion_timestamp or now
    deadline = began + _timeout(cluster, default_timeout)
    removals = tuple(Removal(pod, Why.DELETED) for pod in pods if not pod.deleting)
    if job is not None and job.succeeded:
        return Deletion(step=NextStep.REMOVE_FINALIZER, removals=removals)
    begins = job is None and all(not pod.is_head or pod.ended for pod in pods)
    if why := _why_left(cluster, job, late=now >= deadline, begins=begins):
        return Deletion(step=NextStep.FORCE, removals=removals, why=why)
    step = NextStep.CREATE_JOB if begins else NextStep.WAIT
    return Deletion(step=step, removals=removals, again_at=deadline)


def _why_left(cluster: RayCluster, job: OwnedJob | None, *, late: bool, begins: bool) -> str:
    """Why keys may be left in Redis when the cluster goes now; empty if it does not."""
    failure = job.condition("Failed") if job is not None else None
    if job is not None and failure is not None:
        return f"the Job {job.name}, which removes them, has failed ({failure.message or failure.reason})"
    if late:
        return "they could not be removed in time"
    problems = problems_of(cluster, head_faults(cluster.spec, "spec")) if begins else ()
    return f"no pod can be made that removes them ({sentences(problems).rstrip('.')})" if problems else ""


def _timeout(cluster: RayCluster, default: timedelta) -> timedelta:
    """The annotation's seconds, if it has some that make sense."""
    text = cluster.metadata.annotations.get(Annotation.FT_DELETION_TIMEOUT, "")
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) <= len("1000000") else 0
    return timedelta(seconds=seconds) if seconds else default
