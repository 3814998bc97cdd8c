"""What is due for a RayCronJob: times, time zones, missed times, concurrency and history."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpu_control_plane.api.ray.cronjob import RayCronJob
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.ray.cronjob.controller import ray_job
from gpu_control_plane.ray.cronjob.decide import CronDecision, CronSnapshot, decide, job_name, missed, next_after
from gpu_control_plane.ray.cronjob.events import CronJobEvent
from gpu_control_plane.rules.ray.schedule import Schedule
from unit.ray.job.builders import CLUSTER_SPEC


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


CREATED = at("2026-01-01T00:00:00")


def cron(schedule: str = "0 * * * *", *, last: datetime | None = None, **spec: Any) -> RayCronJob:
    wire = {
        "metadata": {
            "name": "nightly",
            "namespace": "team",
            "uid": "k1",
            "generation": 3,
            "creationTimestamp": CREATED,
        },
        "spec": {"schedule": schedule, "jobTemplate": {"entrypoint": "x", "rayClusterSpec": CLUSTER_SPEC}, **spec},
        "status": {"lastScheduleTime": last} if last is not None else {},
    }
    return msgspec.convert(wire, RayCronJob)


def made(name: str, state: str = "Running", *, ended: datetime | None = None, deleting: bool = False) -> RayJob:
    wire = {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "deletionTimestamp": CREATED if deleting else None,
        },
        "spec": {},
        "status": {"jobDeploymentStatus": state, "endTime": ended},
    }
    return msgspec.convert(wire, RayJob)


def now(given: RayCronJob, moment: str, *jobs: RayJob, problems: tuple[str, ...] = ()) -> CronDecision:
    return decide(CronSnapshot(cron=given, jobs=jobs, problems=problems, now=at(moment)))


# Times.


def test_a_rayjob_is_made_when_its_time_has_come_and_not_before() -> None:
    early = now(cron(), "2026-01-01T00:59:59")
    assert (early.due, early.again_in) == (None, timedelta(seconds=1))
    assert early.status.next_schedule_time == at("2026-01-01T01:00")
    due = now(cron(), "2026-01-01T01:00:00")
    assert due.due == at("2026-01-01T01:00")
    assert due.status.last_schedule_time == at("2026-01-01T01:00")
    assert due.status.next_schedule_time == at("2026-01-01T02:00")
    assert due.status.active == ("nightly-29453820",)


def test_it_is_not_made_again_for_the_same_time() -> None:
    first = now(cron(), "2026-01-01T01:00:07")
    again = now(replace(cron(), status=first.status), "2026-01-01T01:00:08")
    assert (again.due, again.status.last_schedule_time) == (None, first.status.last_schedule_time)


def test_the_name_of_a_rayjob_says_its_time() -> None:
    assert job_name(cron(), at("2026-01-01T01:00")) == f"nightly-{int(at('2026-01-01T01:00').timestamp()) // 60}"


def test_it_looks_at_the_clock_every_ten_minutes_at_least() -> None:
    assert now(cron("0 0 1 1 *"), "2026-03-01T00:00").again_in == timedelta(minutes=10)


@pytest.mark.parametrize(
    ("schedule", "zone", "since", "times"),
    [
        ("30 2 * * *", None, "2026-03-28T12:00", ["2026-03-29T02:30", "2026-03-30T02:30"]),
        ("30 2 * * *", "UTC", "2026-03-28T12:00", ["2026-03-29T02:30"]),
        # Winter time: UTC+1. Summer time begins on 29 March at 02:00, and leaves 02:30 out.
        ("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00", ["2026-03-28T01:30", "2026-03-30T00:30"]),
        ("30 3 * * *", "Europe/Berlin", "2026-03-28T12:00", ["2026-03-29T01:30", "2026-03-30T01:30"]),
        # It ends on 25 October at 03:00, and 02:30 comes twice.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00",
            ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-26T01:30"],
        ),
        ("0 * * * *", "Europe/Berlin", "2026-03-29T00:00", ["2026-03-29T01:00", "2026-03-29T02:00"]),
        ("0 9 * * 1-5", "America/New_York", "2026-03-06T15:00", ["2026-03-09T13:00", "2026-03-10T13:00"]),
        ("0 0 * * *", "Asia/Kathmandu", "2026-01-01T00:00", ["2026-01-01T18:15"]),
        ("0 0 * * *", "Australia/Lord_Howe", "2026-04-04T00:00", ["2026-04-04T13:00", "2026-04-05T13:30"]),
        ("0 0 29 2 *", None, "2026-01-01T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
    ],
)
def test_times_follow_the_time_zone_through_changes_of_clocks(
    schedule: str, zone: str | None, since: str, times: list[str]
) -> None:
    given = cron(schedule, timeZone=zone)
    moment, found = at(since), []
    for _ in times:
        following = next_after(given, moment)
        assert following is not None
        found.append(following)
        moment = following
    assert found == [at(text) for text in times]


# Missed times.


@pytest.mark.parametrize(
    ("given", "moment", "due"),
    [
        # however many were missed, the latest is made up for
        (cron(last=at("2026-01-01T01:00")), "2026-01-01T09:30", "2026-01-01T09:00"),
        (cron("* * * * *"), "2027-01-01T00:00:30", "2027-01-01T00:00"),
        (cron("0 0 1 1 *", last=at("2026-01-01T00:00")), "2027-06-01T00:00", "2027-01-01T00:00"),
        (cron("@every 90m", last=at("2026-01-01T01:00")), "2026-01-01T09:30", "2026-01-01T08:30"),
        (cron("@every 90m", last=at("2026-01-01T01:00")), "2026-01-01T02:29", None),
        # as long as its deadline allows it
        (cron(startingDeadlineSeconds=60), "2026-01-01T01:01:00", "2026-01-01T01:00"),
        (cron(startingDeadlineSeconds=60), "2026-01-01T01:01:01", None),
        (cron(startingDeadlineSeconds=0), "2026-01-01T01:00:00", "2026-01-01T01:00"),
        # and not while it is suspended
        (cron(suspend=True), "2026-01-01T09:30", None),
    ],
)
def test_of_missed_times_the_latest_is_made_up_for(given: RayCronJob, moment: str, due: str | None) -> None:
    assert now(given, moment).due == (at(due) if due is not None else None)


def test_a_missed_time_is_told() -> None:
    decision = now(cron(startingDeadlineSeconds=60), "2026-01-01T01:30:00")
    assert [event.reason for event in decision.events] == [CronJobEvent.MISSED]


def test_a_time_that_is_left_out_is_told_once() -> None:
    given = cron(startingDeadlineSeconds=60)
    before = replace(given, status=now(given, "2026-01-01T00:30:00").status)
    first = now(before, "2026-01-01T01:30:00")
    assert [event.reason for event in first.events] == [CronJobEvent.MISSED]
    assert now(replace(given, status=first.status), "2026-01-01T01:40:00").events == ()


def test_a_suspended_one_has_no_next_time() -> None:
    assert now(cron(suspend=True), "2026-01-01T09:30").status.next_schedule_time is None


@given(
    schedule=st.sampled_from(["*/7 * * * *", "0 * * * *", "30 2 * * *", "0 0 * * 0", "15 3 1 * *", "@every 40m"]),
    zone=st.sampled_from([None, "Europe/Berlin", "America/New_York"]),
    minutes=st.integers(0, 60 * 24 * 400),
)
def test_the_latest_missed_time_is_that_of_going_through_all(schedule: str, zone: str | None, minutes: int) -> None:
    given, moment = cron(schedule, timeZone=zone), CREATED + timedelta(minutes=minutes)
    found = missed(given, moment)
    if found is None:
        following = next_after(given, CREATED)
        assert following is not None
        assert following > moment
        return
    assert CREATED < found <= moment
    following = next_after(replace(given, status=replace(given.status, last_schedule_time=found)), found)
    assert following is not None
    assert following > moment


# Concurrency.


@pytest.mark.parametrize(
    ("policy", "before", "due", "deleted"),
    [
        ("Allow", made("nightly-1"), True, []),
        ("Forbid", made("nightly-1"), False, []),
        ("Forbid", made("nightly-1", "Suspended"), False, []),
        ("Forbid", made("nightly-1", "Retrying"), False, []),
        ("Forbid", made("nightly-1", "Complete", ended=CREATED), True, []),
        ("Forbid", made("nightly-1", "Failed", ended=CREATED), True, []),
        ("Forbid", made("nightly-1", "ValidationFailed"), True, []),
        ("Replace", made("nightly-1"), True, ["nightly-1"]),
        ("Replace", made("nightly-1", deleting=True), True, []),
        ("Replace", made("nightly-1", "Complete", ended=CREATED), True, []),
    ],
)
def test_what_happens_to_the_one_before(policy: str, before: RayJob, due: bool, deleted: list[str]) -> None:
    decision = now(cron(concurrencyPolicy=policy), "2026-01-01T01:00:00", before)
    assert (decision.due is not None) is due
    assert [job.name for job in decision.delete] == deleted


def test_a_time_that_waited_is_made_up_for_when_the_one_before_has_ended() -> None:
    given = cron(concurrencyPolicy="Forbid")
    waits = now(given, "2026-01-01T01:00:00", made("nightly-1"))
    assert [event.reason for event in waits.events] == [CronJobEvent.STILL_ACTIVE]
    assert waits.status.last_schedule_time is None
    later = now(given, "2026-01-01T01:20:00", made("nightly-1", "Complete", ended=CREATED))
    assert later.due == at("2026-01-01T01:00")


def test_a_replacement_that_was_made_before_a_crash_is_not_replaced_itself() -> None:
    given = cron(concurrencyPolicy="Replace")
    ours = made(job_name(given, at("2026-01-01T01:00")))
    decision = now(given, "2026-01-01T01:00:05", ours, made("nightly-1"))
    assert [job.name for job in decision.delete] == ["nightly-1"]
    assert decision.status.active == (ours.name,)


@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
@pytest.mark.parametrize("state", ["Running", "Complete"])
def test_a_rayjob_that_was_made_before_a_crash_is_not_made_again(policy: str, state: str) -> None:
    """Not even where it has ended, and goes by itself or by the limit of the history."""
    given = cron(concurrencyPolicy=policy, successfulJobsHistoryLimit=0, startingDeadlineSeconds=60)
    ours = made(job_name(given, at("2026-01-01T01:00")), state, ended=CREATED if state == "Complete" else None)
    decision = now(given, "2026-01-01T01:30:00", ours)
    assert (decision.due, decision.status.last_schedule_time) == (None, at("2026-01-01T01:00"))
    assert decision.status.active == ((ours.name,) if state == "Running" else ())


# History.


def test_the_limits_keep_the_newest_of_each_kind() -> None:
    good = [made(f"good-{number}", "Complete", ended=CREATED + timedelta(hours=number)) for number in range(5)]
    bad = [made(f"bad-{number}", "Failed", ended=CREATED + timedelta(hours=number)) for number in range(3)]
    limited = cron("0 0 1 1 *", successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    decision = now(limited, "2026-02-01T00:00", *reversed(good), *bad, made("running"))
    assert sorted(job.name for job in decision.delete) == ["bad-0", "bad-1", "good-0", "good-1"]
    assert decision.status.active == ("running",)
    assert decision.status.last_successful_time == CREATED + timedelta(hours=4)
    none = cron("0 0 1 1 *", successfulJobsHistoryLimit=0, failedJobsHistoryLimit=0)
    assert len(now(none, "2026-02-01T00:00", *good, *bad).delete) == 8


def test_a_crd_without_the_limits_keeps_all() -> None:
    """KubeRay's CRD drops the fields: nobody could say there that more are to be kept."""
    ended = [made(f"job-{number}", "Complete", ended=CREATED + timedelta(hours=number)) for number in range(9)]
    assert (
        now(cron("0 0 1 1 *"), "2026-02-01T00:00", *ended, made("bad", "Failed"), made("bad-2", "Failed")).delete == ()
    )


def test_what_is_being_deleted_is_not_deleted_again() -> None:
    gone = made("bad-0", "Failed", ended=CREATED, deleting=True)
    assert now(cron(failedJobsHistoryLimit=0), "2026-01-01T00:30", gone).delete == ()


def test_the_last_success_is_remembered_when_its_rayjob_is_gone() -> None:
    given = replace(cron(), status=replace(cron().status, last_successful_time=CREATED))
    assert now(given, "2026-01-01T00:30").status.last_successful_time == CREATED


# What cannot be carried out.


def test_a_spec_that_cannot_be_carried_out_makes_nothing_and_says_why_once() -> None:
    decision = now(cron(), "2026-01-01T09:00", problems=("spec.schedule: it is none.",))
    assert (decision.due, decision.again_in) == (None, None)
    held = find(decision.status.conditions, "Valid")
    assert held is not None
    assert (held.status, held.message) == ("False", "spec.schedule: it is none.")
    assert [event.reason for event in decision.events] == [CronJobEvent.INVALID]
    known = replace(cron(), status=decision.status)
    assert now(known, "2026-01-01T09:01", problems=("spec.schedule: it is none.",)).events == ()
    corrected = now(known, "2026-01-01T09:02")
    assert corrected.due == at("2026-01-01T09:00")
    held = find(corrected.status.conditions, "Valid")
    assert held is not None
    assert held.status == "True"


def test_a_rayjob_belongs_to_its_raycronjob_and_carries_its_labels() -> None:
    given = replace(cron(), metadata=replace(cron().metadata, labels={"kueue.x-k8s.io/queue-name": "q"}))
    wire = ray_job(given, at("2026-01-01T01:00"))
    assert wire["metadata"]["name"] == "nightly-29453820"
    assert wire["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert wire["metadata"]["labels"]["ray.io/originated-from-crd"] == "RayCronJob"
    assert wire["metadata"]["ownerReferences"][0]["uid"] == "k1"
    assert wire["spec"]["entrypoint"] == "x"


def test_schedules_of_the_examples_are_understood() -> None:
    for text in ("@hourly", "0 2 * * 1-5", "*/5 * * * *", "@every 1h30m", "TZ=Europe/Berlin 0 6 * * *"):
        Schedule.parse(text)
