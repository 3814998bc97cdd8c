"""What goes when a job has ended: by its rules, by the older pair, or by `shutdownAfterJobFinishes`. Pure.

A cluster that was selected is not ours to delete. A RayJob whose rule says so goes nevertheless: that leaves the
cluster alone.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gpu_control_plane.api.ray.job import (
    DeletionPolicy,
    DeletionRule,
    JobFailedReason,
    JobStatus,
    LegacyDeletion,
)
from gpu_control_plane.ray.job.events import JobEvent
from gpu_control_plane.ray.job.snapshot import Call, Decision, Notice, Snapshot, Step, Submitter

_STRENGTH: Final = (DeletionPolicy.NONE, DeletionPolicy.WORKERS, DeletionPolicy.CLUSTER, DeletionPolicy.SELF)
"""Policies, the most destructive last."""
_OUR_CLOCKS: Final = frozenset(
    {
        JobFailedReason.DEADLINE_EXCEEDED,
        JobFailedReason.PRE_RUNNING_DEADLINE_EXCEEDED,
        JobFailedReason.STATUS_CHECK_TIMEOUT,
    }
)
"""Reasons of failures that Ray has not heard of."""


class Due(msgspec.Struct, frozen=True):
    """What goes, and when."""

    policy: DeletionPolicy
    at: datetime


def clean_up(seen: Snapshot) -> Decision:
    """Do the most destructive of what is overdue and undone, and say when the next is due."""
    status = seen.job.status
    submits = _may_still_submit(seen)
    first = (Step.DELETE_SUBMITTER,) if submits else ()
    calls, again = _stop(seen) if not submits else (frozenset(), None)
    undone = [one for one in deletions(seen) if _is_undone(seen, one.policy)]
    overdue = [one.policy for one in undone if one.at <= seen.now]
    later = [one.at - seen.now for one in undone if one.at > seen.now]
    soonest = min((*later, *((again,) if again is not None else ())), default=None)
    if not overdue:
        return Decision(status=status, steps=(*first, Step.MAKE_GROUP), calls=calls, again=soonest)
    policy = max(overdue, key=_STRENGTH.index)
    step = {
        DeletionPolicy.SELF: Step.DELETE_SELF,
        DeletionPolicy.CLUSTER: Step.DELETE_CLUSTERS,
        DeletionPolicy.WORKERS: Step.SUSPEND_WORKERS,
    }[policy]
    notice = Notice(*_NOTES[policy])
    return Decision(status=status, steps=(*first, step), calls=calls, notices=(notice,), again=soonest)


def deletions(seen: Snapshot) -> Iterator[Due]:
    """What the spec asks for, after this end."""
    spec, status = seen.job.spec, seen.job.status
    if status.end_time is None:
        return
    strategy = spec.deletion_strategy
    usual = status.end_time + timedelta(seconds=spec.ttl_seconds_after_finished)
    if strategy is not None and strategy.deletion_rules is not None:
        for rule in strategy.deletion_rules:
            if _holds(rule, seen):
                yield Due(rule.policy, status.end_time + timedelta(seconds=rule.condition.ttl_seconds))
        return
    if strategy is not None and (strategy.on_success is not None or strategy.on_failure is not None):
        pair: dict[JobStatus, LegacyDeletion | None] = {
            JobStatus.SUCCEEDED: strategy.on_success,
            JobStatus.FAILED: strategy.on_failure,
        }
        held = pair.get(status.job_status)
        if held is not None and held.policy is not None:
            yield Due(held.policy, usual)
        return
    if spec.shutdown_after_job_finishes and not spec.cluster_selector:
        yield Due(DeletionPolicy.SELF if seen.deletes_self else DeletionPolicy.CLUSTER, usual)


def _holds(rule: DeletionRule, seen: Snapshot) -> bool:
    condition, status = rule.condition, seen.job.status
    if condition.job_status is not None:
        return condition.job_status == status.job_status
    return condition.job_deployment_status == status.job_deployment_status


def _is_undone(seen: Snapshot, policy: DeletionPolicy) -> bool:
    match policy:
        case DeletionPolicy.SELF:
            return True
        case DeletionPolicy.CLUSTER:
            return any(not held.deleting for held in seen.own_clusters)
        case DeletionPolicy.WORKERS:
            return any(
                not held.deleting and any(not group.suspend for group in held.spec.worker_group_specs)
                for held in seen.own_clusters
            )
        case _:
            return False


def _may_still_submit(seen: Snapshot) -> bool:
    """Whether what submits would do so after the end: Ray has never had the job, or there is no cluster, and its pods
    would wait for one of that name for ever. One that only prints the log goes on."""
    never_had = seen.job.status.job_status is JobStatus.NEW
    return seen.job_object and seen.submitter is Submitter.ACTIVE and (never_had or seen.cluster is None)


def _stop(seen: Snapshot) -> tuple[frozenset[Call], timedelta | None]:
    """A job that was given up by our clocks may still run, and is told to stop; not for ever: it may be long gone."""
    status = seen.job.status
    if status.reason not in _OUR_CLOCKS or status.job_status.terminal or not status.job_id or status.end_time is None:
        return frozenset(), None
    left = status.end_time + seen.waiting.status_check - seen.now
    if seen.cluster is None or left <= timedelta():
        return frozenset(), None
    # Once Ray has been told, the call is kept and not made again.
    return frozenset({Call.STOP}), left


_NOTES: Final = {
    DeletionPolicy.SELF: (JobEvent.DELETED_SELF, "the job has ended, and the RayJob goes as its spec asks for"),
    DeletionPolicy.CLUSTER: (JobEvent.DELETED_CLUSTER, "the job has ended, and its RayCluster goes"),
    DeletionPolicy.WORKERS: (JobEvent.UPDATED_CLUSTER, "the job has ended, and the workers of its RayCluster go"),
}
