"""What waits: workers for cards, a job for its cluster, a service for its applications. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from gpu_control_plane.api.ray.cluster import ClusterCondition, RayCluster
from gpu_control_plane.api.ray.job import JobDeploymentStatus, JobFailedReason, JobStatus, RayJob, SubmissionMode
from gpu_control_plane.api.ray.names import MANAGED_BY_MULTIKUEUE, Label, NodeType
from gpu_control_plane.api.ray.reasons import ServiceReason
from gpu_control_plane.api.ray.service import RayService, ServiceCondition
from gpu_control_plane.kube.conditions import TRUE, find, is_true
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.ray.owned import RayPod

_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_COMING_UP: Final = frozenset({JobDeploymentStatus.NEW, JobDeploymentStatus.INITIALIZING})


class GroupWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """Workers of a group that have no node yet, and ask for cards."""

    group: str
    workers: int
    since: datetime | None
    """Since when the oldest of them has waited."""
    pod: str
    """That one."""
    message: str
    """Why, as its condition says."""


class Waiting(msgspec.Struct, frozen=True):
    """Something waits, and has since then."""

    since: datetime
    why: str


def waiting_groups(pods: Iterable[RayPod], units: Callable[[Mapping[str, int | str]], int]) -> dict[str, GroupWaiting]:
    """The groups of a cluster, by name, whose workers wait for cards. `units` counts the GPUs of a container."""
    waiting: dict[str, list[RayPod]] = {}
    for pod in pods:
        if (
            pod.metadata.labels.get(Label.NODE_TYPE) == NodeType.WORKER
            and _waits(pod)
            and any(units(each) for each in _limits(pod))
        ):
            waiting.setdefault(pod.group, []).append(pod)
    return {group: _group(group, held) for group, held in sorted(waiting.items())}


def job_waits(job: RayJob, why: str) -> Waiting | None:
    """Whether a RayJob is meant to run and does not. One that a person has to submit, or that is suspended, does not
    wait in this sense. Nor does one between two tries: its times are those of the try before, which may have run long.
    """
    status = job.status
    between = status.job_deployment_status is JobDeploymentStatus.NEW and status.start_time is not None
    coming = status.job_deployment_status in _COMING_UP and not between
    since = status.start_time or job.metadata.creation_timestamp
    if job.deleting or job.spec.suspend or since is None or job.spec.managed_by == MANAGED_BY_MULTIKUEUE:
        return None
    if coming:
        return Waiting(since, f"its cluster is not up: {why}" if why else "its cluster is not up")
    return _of_submitted(job, since) if status.job_deployment_status is JobDeploymentStatus.RUNNING else None


def service_waits(service: RayService, why: str) -> Waiting | None:
    """Whether a RayService is meant to answer requests and does not."""
    held = service.status.conditions
    stopped = service.spec.suspend or any(
        is_true(held, kind) for kind in (ServiceCondition.SUSPENDING, ServiceCondition.SUSPENDED)
    )
    ready = find(held, ServiceCondition.READY)
    if service.deleting or stopped or service.spec.managed_by == MANAGED_BY_MULTIKUEUE:
        return None
    if ready is not None and (ready.status == TRUE or _answers_although_edited(service, ready)):
        return None
    since = (ready.last_transition_time if ready is not None else None) or service.metadata.creation_timestamp
    said = _said(ready)
    return Waiting(since, "; ".join(filter(None, (said, why))) or "nothing says why") if since is not None else None


def cluster_why(cluster: RayCluster | None, groups: Mapping[str, GroupWaiting]) -> str:
    """What keeps a cluster from being up, in a sentence's part; empty if nothing does, or nobody knows."""
    if cluster is None:
        return "there is no RayCluster yet"
    return "; ".join(_reasons(cluster, groups))


def group_why(waiting: GroupWaiting, namespace: str) -> str:
    """The same of one group, with the command that says more."""
    message = f": {waiting.message}" if waiting.message else ""
    return (
        f"{counted(waiting.workers, 'worker')} of group {waiting.group} wait{_s(waiting.workers)} for cards{message}. "
        f"See `kubectl gpu explain pod {waiting.pod} -n {namespace}`"
    )


def _of_submitted(job: RayJob, since: datetime) -> Waiting | None:
    """Of a job whose cluster is up: Ray does not have it yet, has not begun it, or has lost it."""
    status = job.status
    if status.reason == JobFailedReason.LOST:
        return Waiting(status.job_status_check_failure_start_time or since, status.message)
    if status.job_status is JobStatus.PENDING:
        return Waiting(since, "Ray has not begun it: it may ask for more than its cluster has")
    if status.job_status is not JobStatus.NEW:
        return None
    said = f": {status.message}" if status.message else ""
    return Waiting(since, f"Ray does not have it yet{said}; {_who_submits(job)}")


def _who_submits(job: RayJob) -> str:
    match job.spec.submission_mode:
        case SubmissionMode.HTTP:
            return "the operator submits it through Ray's dashboard"
        case SubmissionMode.INTERACTIVE:
            return f"submit it under the ID {job.status.job_id}"
        case SubmissionMode.SIDECAR:
            return "see the container beside its head that submits it"
        case _:
            return f"see the Job {job.name} that submits it, and its pod"


def _answers_although_edited(service: RayService, ready: Condition) -> bool:
    """Whether it is not ready only because its spec cannot be carried out any more: what was there before goes on."""
    return ready.reason == ServiceReason.VALIDATION_FAILED and service.status.num_serve_endpoints > 0


def _reasons(cluster: RayCluster, groups: Mapping[str, GroupWaiting]) -> Iterator[str]:
    held = cluster.status.conditions
    for kind in (ClusterCondition.VALID, ClusterCondition.CAPACITY):
        found = find(held, kind)
        if found is not None and found.status != TRUE:
            yield _said(found)
    if is_true(held, ClusterCondition.REPLICA_FAILURE):
        yield _said(find(held, ClusterCondition.REPLICA_FAILURE))
    yield from (
        f"{counted(each.workers, 'worker')} of group {each.group} wait{_s(each.workers)} for cards"
        for each in groups.values()
    )
    head = find(held, ClusterCondition.HEAD_POD_READY)
    if head is not None and head.status != TRUE:
        yield f"the head is not ready ({_said(head)})"


def _said(condition: Condition | None) -> str:
    if condition is None:
        return ""
    return f"{condition.reason}: {condition.message}" if condition.message else condition.reason


def _s(number: int) -> str:
    return "s" if number == 1 else ""


def _waits(pod: RayPod) -> bool:
    return not pod.spec.node_name and not pod.deleting and not pod.ended


def _limits(pod: RayPod) -> Iterator[Mapping[str, int | str]]:
    return (each.resources.limits for each in pod.spec.containers)


def _group(name: str, pods: list[RayPod]) -> GroupWaiting:
    oldest = min(pods, key=lambda pod: (pod.metadata.creation_timestamp or _NEVER, pod.name))
    scheduled = oldest.condition("PodScheduled")
    return GroupWaiting(
        group=name,
        workers=len(pods),
        since=oldest.metadata.creation_timestamp,
        pod=oldest.name,
        message=scheduled.message if scheduled is not None else "",
    )
