"""«What now?» for a RayJob: ordered questions about a snapshot, each with its answer. Pure.

Two rules stand above KubeRay's table. What Ray says of a job counts before every clock, so that no time in which the
operator was away turns a success into a failure. And the operator never submits a second time, in the same try, a job
that Ray has had. The pods of a submitter do, as KubeRay's, if the head has lost its state and Kubernetes retries them.
"""
# ruff: noqa: C901, PLR0911, PLR0912 - ordered questions, each with its answer

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import ClusterState
from gpu_control_plane.api.ray.job import (
    JobDeploymentStatus,
    JobFailedReason,
    JobStatus,
    RayJobInfo,
    RayJobStatus,
    SubmissionMode,
)
from gpu_control_plane.api.ray.names import Finalizer, Label
from gpu_control_plane.ray.dashboard.models import JobDetails
from gpu_control_plane.ray.event_record import EventRecord
from gpu_control_plane.ray.job.cleanup import clean_up
from gpu_control_plane.ray.job.events import JobEvent
from gpu_control_plane.ray.job.snapshot import Call, Decision, Snapshot, Step, Submitter

_NEVER_RETRIED: Final = frozenset({JobFailedReason.DEADLINE_EXCEEDED, JobFailedReason.STATUS_CHECK_TIMEOUT})


def decide(seen: Snapshot) -> Decision:
    """What now?"""
    if seen.job.deleting:
        return finalize(seen)
    match seen.job.status.job_deployment_status:
        case JobDeploymentStatus.INITIALIZING:
            return initialize(seen)
        case JobDeploymentStatus.WAITING:
            return wait_for_person(seen)
        case JobDeploymentStatus.RUNNING:
            return follow(seen)
        case JobDeploymentStatus.SUSPENDING | JobDeploymentStatus.RETRYING:
            return delete_cluster(seen)
        case JobDeploymentStatus.COMPLETE | JobDeploymentStatus.FAILED:
            return clean_up(seen)
        case _:
            return begin(seen)


def begin(seen: Snapshot) -> Decision:
    """Nothing has been made yet: new, suspended, not valid, or to be tried again."""
    spec, status = seen.job.spec, seen.job.status
    if seen.problems:
        message = "; ".join(seen.problems)
        refused = replace(
            status,
            job_deployment_status=JobDeploymentStatus.VALIDATION_FAILED,
            reason=JobFailedReason.VALIDATION_FAILED,
            message=message,
        )
        return _write(seen, refused, EventRecord(JobEvent.INVALID, message, warning=True))
    if spec.suspend:
        if seen.own_clusters or seen.job_object:
            return _suspend(seen, status)
        return _write(seen, replace(status, job_deployment_status=JobDeploymentStatus.SUSPENDED, reason="", message=""))
    # A corrected spec goes on where it was: what was made for it before is used again.
    names = status if status.ray_cluster_name else names_for(seen)
    started = replace(
        names,
        job_deployment_status=JobDeploymentStatus.INITIALIZING,
        start_time=_second(seen.now),
        reason="",
        message="",
    )
    finalizer = () if Finalizer.JOB.value in seen.job.metadata.finalizers else (Step.ADD_FINALIZER,)
    return Decision(status=started, steps=(*finalizer, Step.WRITE_STATUS))


def names_for(seen: Snapshot) -> RayJobStatus:
    """The status with the names of this try. They are written before anything of that name is made."""
    job = seen.job
    interactive = job.spec.submission_mode is SubmissionMode.INTERACTIVE
    made = f"{job.name}-{seen.suffix}"
    return replace(
        job.status,
        job_id="" if interactive else job.spec.job_id or made,
        ray_cluster_name=job.spec.cluster_selector.get(Label.CLUSTER.value) or made,
        end_time=None,
    )


def initialize(seen: Snapshot) -> Decision:
    """The cluster comes up."""
    spec, cluster = seen.job.spec, seen.cluster
    status = _looked_at(seen)
    # A container of the head submits as soon as Ray is up, whether or not there are workers: Ray is asked from then on.
    submits_itself = spec.submission_mode is SubmissionMode.SIDECAR and cluster is not None and seen.head
    calls = _FOLLOW if submits_itself else frozenset()
    if _has_begun(seen):
        # It was submitted, and the status not written; or it has ended before the last worker was up.
        running = replace(status, job_deployment_status=JobDeploymentStatus.RUNNING, reason="", message="")
        return Decision(status=running, steps=(*_service(seen), Step.WRITE_STATUS), calls=_asks(seen))
    suspend, late = _is_to_suspend(seen), _missed_deadline(seen) or _missed_pre_running(seen)
    if (suspend or late) and submits_itself and (left := _until_heard(seen)):
        return _stay(seen, status, calls=calls, again_in=left)
    if suspend:
        return _suspend(seen, status)
    if late:
        return fail(seen, status, *late)
    if seen.problems:
        # The spec was edited. Nothing is submitted by it; what runs stays, and a corrected one goes on.
        message = "; ".join(seen.problems)
        held = replace(status, reason=JobFailedReason.VALIDATION_FAILED, message=message)
        events = (EventRecord(JobEvent.INVALID, message, warning=True),) if message != seen.job.status.message else ()
        return _stay(seen, held, calls=calls, events=events)
    status = replace(status, reason="", message="")
    if cluster is None:
        return _stay(seen, status, *(() if spec.cluster_selector else (Step.MAKE_CLUSTER,)))
    if cluster.deleting or cluster.status.state is not ClusterState.READY:
        return _stay(seen, status, Step.MAKE_GROUP, calls=calls)
    if spec.submission_mode is SubmissionMode.INTERACTIVE:
        return _write(seen, replace(status, job_deployment_status=JobDeploymentStatus.WAITING))
    submitter = (Step.MAKE_SUBMITTER,) if spec.submission_mode is SubmissionMode.K8S_JOB else ()
    running = replace(status, job_deployment_status=JobDeploymentStatus.RUNNING)
    return Decision(status=running, steps=(*submitter, *_service(seen), Step.WRITE_STATUS), calls=_asks(seen))


def wait_for_person(seen: Snapshot) -> Decision:
    """A person submits the job, and writes its ID into the spec."""
    status = _looked_at(seen)
    if _is_to_suspend(seen):
        return _suspend(seen, status)
    if seen.job.spec.job_id:
        running = replace(status, job_id=seen.job.spec.job_id, job_deployment_status=JobDeploymentStatus.RUNNING)
        return Decision(status=running, steps=(Step.WRITE_STATUS,), calls=_asks(seen))
    if late := _missed_pre_running(seen):
        return fail(seen, status, *late)
    return _stay(seen, status, *_service(seen))


def follow(seen: Snapshot) -> Decision:
    """The job has been, or is being, submitted."""
    ray, timings = seen.ray, seen.timings
    suspend = _is_to_suspend(seen)
    status = _looked_at(seen)
    details = ray.value if ray is not None else None
    failing_for = seen.now - ray.since if ray is not None and ray.error is not None else timedelta()
    deadline = _missed_deadline(seen)

    # Has it ended? That counts before every clock. A submitter that still prints the log is waited for.
    ended = _ended(status, details)
    if ended is not None:
        left = _end_of(ended, seen) + timings.end_grace - seen.now
        if seen.submitter is not Submitter.ACTIVE or _has_lost_its_head(seen) or suspend or deadline:
            return end(seen, ended)
        if left <= timedelta():
            return end(seen, ended, JobFailedReason.GRACE_PERIOD_EXCEEDED)
        return _stay(seen, ended, *_service(seen), calls=_asks(seen), again_in=left)

    # Can Ray still be asked at all?
    if seen.cluster is None:
        return fail(seen, status, JobFailedReason.APP_FAILED, f"its RayCluster {status.ray_cluster_name} is gone")
    if _has_lost_its_head(seen):
        return fail(seen, status, JobFailedReason.APP_FAILED, "the head of its RayCluster, which ran the job, is gone")

    # Not heard yet: this process has begun to look, or Ray's dashboard has just stopped answering.
    left = _until_heard(seen)
    if ray is None or left:
        return _stay(seen, status, *_service(seen), calls=_asks(seen), again_in=left)

    # It has not ended, as far as can be known.
    if suspend:
        return _suspend(seen, status)
    if deadline:
        return fail(seen, status, *deadline)

    if ray.error is not None:
        if seen.submitter is Submitter.FAILED and status.job_status is JobStatus.NEW:
            return fail(seen, status, *_SUBMITTER_FAILED)
        if seen.submitter is Submitter.SUCCEEDED:
            unknown = replace(status, job_status=JobStatus.FAILED)
            message = f"the submitter has ended, and what became of the job cannot be known: {ray.error}"
            return fail(seen, unknown, JobFailedReason.GRACE_PERIOD_EXCEEDED, message)
        if failing_for >= timings.status_check:
            return fail(seen, status, JobFailedReason.STATUS_CHECK_TIMEOUT, str(ray.error))
        failing = replace(
            _without_details(status, str(ray.error)), job_status_check_failure_start_time=_second(ray.since)
        )
        event = EventRecord(JobEvent.NOT_REACHED, str(ray.error), warning=True)
        again_in = timings.status_check - failing_for
        return _stay(seen, failing, *_service(seen), calls=_asks(seen), again_in=again_in, events=(event,))

    status = replace(status, job_status_check_failure_start_time=None)
    if details is None:
        return _absent(seen, status)

    # Ray has it: whatever has become of the submitter, it is not failed for that.
    known = status.job_status is not JobStatus.NEW
    events = () if known else (EventRecord(JobEvent.SUBMITTED, f"Ray has the job {status.job_id}"),)
    return _stay(seen, _with_details(status, details), *_service(seen), calls=_asks(seen), events=events)


def _absent(seen: Snapshot, status: RayJobStatus) -> Decision:
    """Ray answers, and does not know the job."""
    mode, submitted = seen.job.spec.submission_mode, seen.submitted
    if seen.submitter is Submitter.FAILED:
        return fail(seen, status, *_SUBMITTER_FAILED)
    if seen.submitter is Submitter.MISSING:
        message = "the Job that was to submit it is gone, and Ray does not know the job"
        return fail(seen, status, JobFailedReason.SUBMISSION_FAILED, message)
    lost = status.job_status is not JobStatus.NEW or (submitted is not None and submitted.error is None)
    if seen.submitter is Submitter.SUCCEEDED or (lost and mode is SubmissionMode.HTTP):
        message = "Ray no longer knows the job: its head has lost its state"
        return fail(seen, status, JobFailedReason.APP_FAILED, message)
    if mode is SubmissionMode.INTERACTIVE and lost:
        return _lost(seen, status)
    if mode is not SubmissionMode.HTTP:
        return _stay(seen, _without_details(status), *_service(seen), calls=_asks(seen))
    if submitted is not None and submitted.error is not None:
        failing_for = seen.now - submitted.since
        if submitted.error.permanent or failing_for >= seen.timings.status_check:
            return fail(seen, status, JobFailedReason.SUBMISSION_FAILED, str(submitted.error))
        event = EventRecord(JobEvent.NOT_REACHED, str(submitted.error), warning=True)
        again_in = seen.timings.status_check - failing_for
        status = _without_details(status, str(submitted.error))
        return _stay(seen, status, *_service(seen), calls=_SUBMIT, again_in=again_in, events=(event,))
    return _stay(seen, _without_details(status), *_service(seen), calls=_SUBMIT)


def _lost(seen: Snapshot, status: RayJobStatus) -> Decision:
    """Who has submitted the job may do so again. That it is to be done is said once."""
    before, since = seen.job.status, seen.ray.since if seen.ray is not None else seen.now
    known = before.reason == JobFailedReason.LOST
    message = f"Ray no longer knows the job: submit it again under the ID {status.job_id}, or delete the RayJob"
    lost = replace(
        status,
        reason=JobFailedReason.LOST,
        message=message,
        job_status_check_failure_start_time=before.job_status_check_failure_start_time if known else _second(since),
    )
    events = () if known else (EventRecord(JobEvent.LOST, message, warning=True),)
    return _stay(seen, lost, *_service(seen), calls=_asks(seen), events=events)


def end(seen: Snapshot, status: RayJobStatus, reason: str = "") -> Decision:
    """The job has ended, and Ray has said how."""
    if status.job_status is JobStatus.FAILED:
        return fail(seen, status, JobFailedReason(reason or JobFailedReason.APP_FAILED), status.message)
    succeeded = status.succeeded + (status.job_status is JobStatus.SUCCEEDED)
    complete = replace(
        status,
        job_deployment_status=JobDeploymentStatus.COMPLETE,
        reason=reason,
        end_time=_second(seen.now),
        succeeded=succeeded,
        job_status_check_failure_start_time=None,
    )
    event = EventRecord(JobEvent.COMPLETED, f"the job {status.job_id} has ended: {status.job_status}")
    return _write(seen, complete, event)


def fail(seen: Snapshot, status: RayJobStatus, reason: JobFailedReason, message: str) -> Decision:
    """This try has failed: again with a new cluster, or for good."""
    failed = status.failed + 1
    again = failed <= (seen.job.spec.backoff_limit or 0) and reason not in _NEVER_RETRIED
    ended = replace(
        status,
        job_deployment_status=JobDeploymentStatus.RETRYING if again else JobDeploymentStatus.FAILED,
        reason=reason,
        message=message,
        failed=failed,
        end_time=None if again else _second(seen.now),
        job_status_check_failure_start_time=None,
    )
    note = f"{reason}: {message or 'Ray gives no reason'}"
    event = EventRecord(JobEvent.RETRIED if again else JobEvent.FAILED, note, warning=True)
    return _write(seen, ended, event)


def delete_cluster(seen: Snapshot) -> Decision:
    """The cluster of this try, and its submitter, are to go; then the names of the try are forgotten."""
    status = seen.job.status
    steps = (*((Step.DELETE_SUBMITTER,) if seen.job_object else ()), *_own_clusters(seen))
    if steps or seen.own_clusters or seen.job_object:
        goes = EventRecord(JobEvent.DELETED_CLUSTER, f"the RayCluster {status.ray_cluster_name} goes")
        return Decision(status=status, steps=steps, events=(goes,) if Step.DELETE_CLUSTERS in steps else ())
    suspending = status.job_deployment_status is JobDeploymentStatus.SUSPENDING
    cleared = RayJobStatus(
        job_deployment_status=JobDeploymentStatus.SUSPENDED if suspending else JobDeploymentStatus.NEW,
        succeeded=status.succeeded,
        failed=status.failed,
        start_time=status.start_time,
    )
    events = (
        (EventRecord(JobEvent.SUSPENDED, "its cluster has been deleted; it waits to be resumed"),) if suspending else ()
    )
    return _write(seen, cleared, *events)


def finalize(seen: Snapshot) -> Decision:
    """The RayJob is being deleted. A job that has not ended is told to stop, once its submitter cannot submit it any
    more; a cluster that goes with the RayJob takes its job with it, so there it is not insisted on."""
    job, status = seen.job, seen.job.status
    if Finalizer.JOB.value not in job.metadata.finalizers:
        return Decision(status=status)
    gone = Decision(status=status, steps=(Step.REMOVE_FINALIZER,))
    ended = status.job_status.terminal or not status.job_id or seen.cluster is None
    if ended or not _may_have_job(seen):
        return gone
    if seen.job_object and job.spec.cluster_selector:
        return Decision(status=status, steps=(Step.DELETE_SUBMITTER,))
    answer = seen.stopped
    if answer is None:
        return Decision(status=status, calls=_STOP)
    if answer.error is None:
        return gone
    left = seen.timings.submitter_grace - (seen.now - answer.since)
    if job.spec.cluster_selector and left > timedelta():
        return Decision(status=status, calls=_STOP, again_in=left)
    message = f"the job {status.job_id} could not be told to stop: {answer.error}"
    return replace(gone, events=(EventRecord(JobEvent.STOP_FAILED, message, warning=True),))


def _may_have_job(seen: Snapshot) -> bool:
    """Whether Ray may have a job that has not ended: also where its submitter has gone before the state was written."""
    state = seen.job.status.job_deployment_status
    unwritten = state is JobDeploymentStatus.INITIALIZING and bool(seen.job.spec.cluster_selector)
    return state in _WITH_JOB or seen.job_object or unwritten


_FOLLOW: Final = frozenset({Call.FOLLOW})
_SUBMIT: Final = frozenset({Call.FOLLOW, Call.SUBMIT})
_STOP: Final = frozenset({Call.STOP})
_WITH_JOB: Final = frozenset({JobDeploymentStatus.RUNNING, JobDeploymentStatus.FAILED})


def _write(seen: Snapshot, status: RayJobStatus, *events: EventRecord) -> Decision:
    changed = status.job_deployment_status is not seen.job.status.job_deployment_status
    new = events if changed or status.message != seen.job.status.message else ()
    return Decision(status=status, steps=(Step.WRITE_STATUS,), events=new)


def _stay(
    seen: Snapshot,
    status: RayJobStatus,
    *steps: Step,
    calls: frozenset[Call] = frozenset(),
    again_in: timedelta | None = None,
    events: tuple[EventRecord, ...] = (),
) -> Decision:
    due = (again_in, *(limit - seen.now for limit in _limits(seen)))
    soonest = min((left for left in due if left is not None and left > timedelta()), default=None)
    return Decision(status=status, steps=(*steps, Step.WRITE_STATUS), calls=calls, again_in=soonest, events=events)


def _has_begun(seen: Snapshot) -> bool:
    """Whether the job of this try may have been submitted already while its cluster comes up."""
    match seen.job.spec.submission_mode:
        case SubmissionMode.K8S_JOB:
            return seen.job_object
        case SubmissionMode.SIDECAR:
            return seen.submitter.ended or (seen.ray is not None and seen.ray.value is not None)
        case _:
            return False


def _until_heard(seen: Snapshot) -> timedelta:
    """How long nothing is concluded from Ray's silence: this process may have just begun to ask, or the dashboard has
    just stopped answering. Nothing once it has answered, or been silent for long."""
    ray, grace = seen.ray, seen.timings.submitter_grace
    if ray is None:
        return grace
    return max(grace - (seen.now - ray.since), timedelta()) if ray.error is not None else timedelta()


def _is_to_suspend(seen: Snapshot) -> bool:
    """Whether it is to be suspended, and can be: that takes its cluster away, and a selected one is not its own."""
    return seen.job.spec.suspend and not seen.job.spec.cluster_selector


def _suspend(seen: Snapshot, status: RayJobStatus) -> Decision:
    return _write(seen, replace(status, job_deployment_status=JobDeploymentStatus.SUSPENDING))


def _looked_at(seen: Snapshot) -> RayJobStatus:
    """The status with what can be seen of the cluster."""
    status = seen.job.status
    cluster = seen.cluster
    return replace(
        status,
        ray_cluster_status=cluster.status if cluster is not None else status.ray_cluster_status,
        dashboard_url=seen.dashboard_url or status.dashboard_url,
    )


def _with_details(status: RayJobStatus, details: JobDetails) -> RayJobStatus:
    """The status with what Ray says of the job."""
    times = RayJobInfo(start_time=details.start_time, end_time=details.end_time)
    return replace(
        status,
        job_status=details.status,
        reason="",
        message=details.message,
        ray_job_info=times if times != RayJobInfo() else None,
        job_status_check_failure_start_time=None,
    )


def _without_details(status: RayJobStatus, trouble: str = "") -> RayJobStatus:
    """The status while Ray says nothing of the job, and why, if that is known. What it has said before stays."""
    return replace(status, message=trouble) if status.job_status is JobStatus.NEW else status


def _ended(status: RayJobStatus, details: JobDetails | None) -> RayJobStatus | None:
    """The status of a job that has ended: by what Ray says, or has said before."""
    if details is not None and details.status.terminal:
        return _with_details(status, details)
    return status if status.job_status.terminal else None


def _has_lost_its_head(seen: Snapshot) -> bool:
    """Whether the head that ran the job, and the container in it that submitted the job, are gone."""
    return seen.job.spec.submission_mode is SubmissionMode.SIDECAR and not seen.head


def _end_of(ended: RayJobStatus, seen: Snapshot) -> datetime:
    """When the job ended: Ray knows, by its own clock; at the latest since when this process has known."""
    known = seen.ray.since if seen.ray is not None else seen.now
    said = ended.ray_job_info.end_time if ended.ray_job_info is not None else None
    return min(said, known) if said is not None else known


def _asks(seen: Snapshot) -> frozenset[Call]:
    """Ray is asked how the job stands. A submission that has succeeded is kept in mind; one that has not ends."""
    done = seen.submitted is not None and seen.submitted.error is None
    return _SUBMIT if done else _FOLLOW


_SUBMITTER_FAILED: Final = (
    JobFailedReason.SUBMISSION_FAILED,
    "what was to submit the job has failed; its log says why",
)


def _service(seen: Snapshot) -> tuple[Step, ...]:
    return () if seen.job.spec.cluster_selector else (Step.MAKE_SERVICE, Step.MAKE_GROUP)


def _own_clusters(seen: Snapshot) -> tuple[Step, ...]:
    return (Step.DELETE_CLUSTERS,) if any(not held.deleting for held in seen.own_clusters) else ()


def _limits(seen: Snapshot) -> Iterable[datetime]:
    """When the deadlines of this try are over."""
    spec, status = seen.job.spec, seen.job.status
    if status.start_time is None:
        return
    if spec.active_deadline_seconds is not None and status.job_deployment_status is not JobDeploymentStatus.WAITING:
        yield status.start_time + timedelta(seconds=spec.active_deadline_seconds)
    before_running = status.job_deployment_status is not JobDeploymentStatus.RUNNING
    if spec.pre_running_deadline_seconds is not None and before_running:
        yield status.start_time + timedelta(seconds=spec.pre_running_deadline_seconds)


def _missed_deadline(seen: Snapshot) -> tuple[JobFailedReason, str] | None:
    limit = seen.job.spec.active_deadline_seconds
    if not _is_over(seen, limit):
        return None
    return JobFailedReason.DEADLINE_EXCEEDED, f"it has taken longer than activeDeadlineSeconds, {limit} s"


def _missed_pre_running(seen: Snapshot) -> tuple[JobFailedReason, str] | None:
    limit = seen.job.spec.pre_running_deadline_seconds
    if not _is_over(seen, limit):
        return None
    return (
        JobFailedReason.PRE_RUNNING_DEADLINE_EXCEEDED,
        f"it was not running within preRunningDeadlineSeconds, {limit} s",
    )


def _is_over(seen: Snapshot, limit: int | None) -> bool:
    started = seen.job.status.start_time
    return limit is not None and started is not None and seen.now >= started + timedelta(seconds=limit)


def _second(moment: datetime) -> datetime:
    """Times in a status have no fractions."""
    return moment.replace(microsecond=0)
