"""What is due for a RayCronJob: a RayJob to make, RayJobs to delete, and when to look again. Pure.

It works as CronJobs of Kubernetes do: of the times that were missed the latest is made up for, once, while
`startingDeadlineSeconds` allows it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.ray.cronjob import ConcurrencyPolicy, CronJobCondition, RayCronJob, RayCronJobStatus
from gpu_control_plane.api.ray.job import JobDeploymentStatus, RayJob
from gpu_control_plane.kube.conditions import TRUE, condition, find
from gpu_control_plane.ray.cronjob.events import CronJobEvent
from gpu_control_plane.ray.event_record import EventRecord
from gpu_control_plane.rules.ray.schedule import Schedule, zone_of

_FAILED: Final = frozenset({JobDeploymentStatus.FAILED, JobDeploymentStatus.VALIDATION_FAILED})
_ENDED: Final = _FAILED | {JobDeploymentStatus.COMPLETE}
_SPANS: Final = tuple(timedelta(days=days) for days in (1 / 24, 1, 32, 366, 5 * 366))
"""How far back the latest missed time is looked for, step by step: a year of missed minutes is not gone through."""
_LONGEST: Final = timedelta(minutes=10)
"""It is looked at least so often, since the clock of the machine may be set."""


class CronSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A RayCronJob, and the RayJobs that it has made."""

    cron: RayCronJob
    jobs: tuple[RayJob, ...] = ()
    problems: tuple[str, ...] = ()
    """Why the spec cannot be carried out."""
    now: datetime


class CronDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What now. RayJobs are deleted first, then one is made, then the status is written."""

    status: RayCronJobStatus
    delete: tuple[RayJob, ...] = ()
    due: datetime | None = None
    """The time for which a RayJob is made."""
    events: tuple[EventRecord, ...] = ()
    again_in: timedelta | None = None
    """When to look again, whatever happens."""


def decide(seen: CronSnapshot) -> CronDecision:
    """What now?"""
    cron, now = seen.cron, seen.now
    if seen.problems:
        message = " ".join(seen.problems)
        new = _valid(cron.status) is not False or message not in {held.message for held in cron.status.conditions}
        events = (EventRecord(CronJobEvent.INVALID, message, warning=True),) if new else ()
        return CronDecision(status=_status(seen, None, cron.status.last_schedule_time), events=events)
    next_time = next_after(cron, now)
    again_in = min(next_time - now, _LONGEST) if next_time is not None else None
    old = surplus(seen)
    due = None if cron.spec.suspend else missed(cron, now)
    idle = CronDecision(
        status=_status(seen, next_time, cron.status.last_schedule_time),
        delete=old,
        events=_deleted(old),
        again_in=again_in,
    )
    if due is None:
        return idle
    active = [job for job in seen.jobs if is_active(job)]
    name = job_name(cron, due)
    # It may have been made, and the status not written, because of a crash or of somebody else's write. It is not made
    # again then, although it may have ended and be about to go.
    there = any(job.name == name for job in seen.jobs)
    if not there and (left_out := _left_out(cron, due, active, now)) is not None:
        held = cron.status.next_schedule_time
        skipped = (left_out,) if held is None or held <= due else ()
        return replace(idle, events=(*idle.events, *skipped))
    replaced: tuple[RayJob, ...] = ()
    if cron.spec.concurrency_policy is ConcurrencyPolicy.REPLACE:
        replaced = tuple(job for job in active if not job.deleting and job.name != name)
    gone = (*old, *replaced)
    names = frozenset(job.name for job in replaced)
    status = _status(seen, next_time, due, made=None if there else name, gone=names)
    return replace(idle, status=status, delete=gone, due=None if there else due, events=_deleted(gone))


def _left_out(cron: RayCronJob, due: datetime, active: Sequence[RayJob], now: datetime) -> EventRecord | None:
    """Why no RayJob is made for a time that has come."""
    deadline = cron.spec.starting_deadline_seconds
    if deadline is not None and (now - due).total_seconds() > deadline:
        note = f"the RayJob of {_text(due)} was not made within startingDeadlineSeconds, {deadline} s"
        return EventRecord(CronJobEvent.MISSED, note, warning=True)
    if active and cron.spec.concurrency_policy is ConcurrencyPolicy.FORBID:
        note = f"the RayJob of {_text(due)} waits: {', '.join(sorted(job.name for job in active))} has not ended"
        return EventRecord(CronJobEvent.STILL_ACTIVE, note)
    return None


def job_name(cron: RayCronJob, due: datetime) -> str:
    """The name of the RayJob of a time: a second one for it cannot be made."""
    return f"{cron.name}-{int(due.timestamp()) // 60}"


def is_active(job: RayJob) -> bool:
    """Whether a RayJob has not ended. One that waits for its deletion counts as active until it is gone."""
    return job.status.job_deployment_status not in _ENDED


def missed(cron: RayCronJob, now: datetime) -> datetime | None:
    """The latest time that has come and for which nothing was made."""
    since = cron.status.last_schedule_time or cron.metadata.creation_timestamp or now
    schedule, zone = _schedule(cron)
    if schedule.every is not None:
        times = (now - since) // schedule.every
        return since + times * schedule.every if times >= 1 else None
    for span in _SPANS:
        begin = max(since, now - span)
        found = schedule.next_after(begin, zone)
        latest = None
        while found is not None and found <= now:
            latest, found = found, schedule.next_after(found, zone)
        if latest is not None or begin == since:
            return latest
    return None


def next_after(cron: RayCronJob, now: datetime) -> datetime | None:
    """The next time that is still to come."""
    schedule, zone = _schedule(cron)
    if schedule.every is not None:
        since = cron.status.last_schedule_time or cron.metadata.creation_timestamp or now
        return since + ((now - since) // schedule.every + 1) * schedule.every
    return schedule.next_after(now, zone)


def surplus(seen: CronSnapshot) -> tuple[RayJob, ...]:
    """RayJobs that have ended, and are more than the limits keep: the oldest. None where there are no limits: people
    whose CRD does not know them could not raise them."""
    spec = seen.cron.spec
    held = [job for job in seen.jobs if not is_active(job) and not job.deleting]
    good = [job for job in held if job.status.job_deployment_status not in _FAILED]
    bad = [job for job in held if job.status.job_deployment_status in _FAILED]
    return (
        *_beyond(good, spec.successful_jobs_history_limit),
        *_beyond(bad, spec.failed_jobs_history_limit),
    )


def _beyond(jobs: list[RayJob], limit: int | None) -> list[RayJob]:
    """The oldest, but for as many as are kept."""

    def age(job: RayJob) -> tuple[str, str]:
        ended = job.status.end_time or job.metadata.creation_timestamp
        return ended.isoformat() if ended is not None else "", job.name

    return sorted(jobs, key=age)[: max(len(jobs) - limit, 0)] if limit is not None else []


def _schedule(cron: RayCronJob) -> tuple[Schedule, ZoneInfo | None]:
    zone = zone_of(cron.spec.time_zone) if cron.spec.time_zone else None
    return Schedule.parse(cron.spec.schedule), zone


def _status(
    seen: CronSnapshot,
    next_time: datetime | None,
    last: datetime | None,
    *,
    made: str | None = None,
    gone: frozenset[str] = frozenset(),
) -> RayCronJobStatus:
    cron = seen.cron
    active = {job.name for job in seen.jobs if is_active(job)} - gone
    succeeded = [
        job.status.end_time
        for job in seen.jobs
        if job.status.job_deployment_status is JobDeploymentStatus.COMPLETE and job.status.end_time is not None
    ]
    if cron.status.last_successful_time is not None:
        succeeded.append(cron.status.last_successful_time)
    reason, message = ("InvalidSpec", " ".join(seen.problems)) if seen.problems else ("Valid", "")
    generation = cron.metadata.generation
    valid = condition(
        cron.status.conditions,
        CronJobCondition.VALID,
        not seen.problems,
        reason,
        message,
        generation=generation,
        now=seen.now,
    )
    return RayCronJobStatus(
        last_schedule_time=last,
        last_successful_time=max(succeeded, default=None),
        next_schedule_time=next_time if not cron.spec.suspend else None,
        active=tuple(sorted(active | ({made} if made is not None else set()))),
        observed_generation=generation,
        conditions=(valid,),
    )


def _valid(status: RayCronJobStatus) -> bool | None:
    held = find(status.conditions, CronJobCondition.VALID)
    return None if held is None else held.status == TRUE


def _deleted(jobs: tuple[RayJob, ...]) -> tuple[EventRecord, ...]:
    return tuple(EventRecord(CronJobEvent.DELETED, f"RayJob {job.name} was deleted") for job in jobs)


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
