"""What goes when a job has ended, and when."""

from datetime import timedelta
from typing import Any

import pytest

from gpu_control_plane.ray.job.decide import decide
from gpu_control_plane.ray.job.snapshot import Call, Step, Submitter
from unit.ray.job.builders import NOW, cluster, failing, job, seen, selecting, told
from unit.ray.job.test_decide import AWAY

SHUTDOWN = {"shutdownAfterJobFinishes": True}
STAGED = (
    ("DeleteWorkers", "SUCCEEDED", 30),
    ("DeleteCluster", "SUCCEEDED", 60),
    ("DeleteSelf", "SUCCEEDED", 90),
    ("DeleteNone", "FAILED", 0),
)


def rules(*given: tuple[str, str, int]) -> dict[str, Any]:
    """Rules by the status of the job, or, for `Failed`, by that of the deployment."""
    made = [
        {
            "policy": policy,
            "condition": {"jobDeploymentStatus" if when == "Failed" else "jobStatus": when, "ttlSeconds": ttl},
        }
        for policy, when, ttl in given
    ]
    return {"deletionStrategy": {"deletionRules": made}}


def pair(**given: str) -> dict[str, Any]:
    return {"deletionStrategy": {key: {"policy": policy} for key, policy in given.items()}}


def ended(state: str, spec: dict[str, Any], *, ago: float, job_status: str = "SUCCEEDED", **status: Any) -> Any:
    return job(state, spec=spec, jobStatus=job_status, endTime=NOW - timedelta(seconds=ago), **status)


@pytest.mark.parametrize(
    ("spec", "ago", "steps", "again"),
    [
        ({}, 9999, (), None),
        (SHUTDOWN, 0, (Step.DELETE_CLUSTERS,), None),
        ({**SHUTDOWN, "ttlSecondsAfterFinished": 60}, 59, (), 1),
        ({**SHUTDOWN, "ttlSecondsAfterFinished": 60}, 60, (Step.DELETE_CLUSTERS,), None),
        (rules(*STAGED), 29, (), 1),
        (rules(*STAGED), 30, (Step.SUSPEND_WORKERS,), 30),
        (rules(*STAGED), 60, (Step.DELETE_CLUSTERS,), 30),
        (rules(*STAGED), 90, (Step.DELETE_SELF,), None),
        (rules(("DeleteCluster", "FAILED", 0)), 10, (), None),
        (rules(("DeleteNone", "SUCCEEDED", 0)), 10, (), None),
        (pair(onSuccess="DeleteWorkers", onFailure="DeleteSelf"), 0, (Step.SUSPEND_WORKERS,), None),
        (pair(onSuccess="DeleteNone", onFailure="DeleteSelf"), 0, (), None),
    ],
)
def test_after_a_success(spec: dict[str, Any], ago: int, steps: tuple[Step, ...], again: int | None) -> None:
    decision = decide(seen(ended("Complete", spec, ago=ago)))
    assert tuple(step for step in decision.steps if step is not Step.MAKE_GROUP) == steps
    assert decision.again == (timedelta(seconds=again) if again is not None else None)


@pytest.mark.parametrize(
    ("spec", "job_status", "steps"),
    [
        (pair(onSuccess="DeleteNone", onFailure="DeleteCluster"), "FAILED", (Step.DELETE_CLUSTERS,)),
        (pair(onSuccess="DeleteNone", onFailure="DeleteCluster"), "RUNNING", ()),
        (rules(("DeleteCluster", "Failed", 0)), "RUNNING", (Step.DELETE_CLUSTERS,)),
        (rules(("DeleteCluster", "Failed", 0), ("DeleteSelf", "FAILED", 0)), "FAILED", (Step.DELETE_SELF,)),
        (SHUTDOWN, "RUNNING", (Step.DELETE_CLUSTERS,)),
    ],
)
def test_after_a_failure(spec: dict[str, Any], job_status: str, steps: tuple[Step, ...]) -> None:
    decision = decide(seen(ended("Failed", spec, ago=10, job_status=job_status)))
    assert tuple(step for step in decision.steps if step is not Step.MAKE_GROUP) == steps


@pytest.mark.parametrize(
    ("spec", "there", "again"),
    [
        (SHUTDOWN, None, None),
        (SHUTDOWN, cluster(deleting=True), None),
        (rules(*STAGED[:2]), cluster(suspended=True), 25),
        (rules(*STAGED[:1]), cluster(suspended=True), None),
    ],
)
def test_what_is_done_is_not_done_again(spec: dict[str, Any], there: Any, again: int | None) -> None:
    decision = decide(seen(ended("Complete", spec, ago=35), cluster=there))
    assert decision.steps == (Step.MAKE_GROUP,)
    assert decision.again == (timedelta(seconds=again) if again is not None else None)


def test_the_whole_rayjob_goes_where_the_operator_is_told_so() -> None:
    given = ended("Complete", SHUTDOWN, ago=0)
    assert decide(seen(given, deletes_self=True)).steps == (Step.DELETE_SELF,)


def test_a_selected_cluster_never_goes_and_the_rayjob_does_where_a_rule_says_so() -> None:
    def after(spec: dict[str, Any]) -> tuple[Step, ...]:
        given = selecting("Complete", spec=spec, jobStatus="SUCCEEDED")
        return decide(seen(given, cluster=cluster(), own_clusters=())).steps

    assert after(SHUTDOWN) == (Step.MAKE_GROUP,)
    assert after(rules(("DeleteCluster", "SUCCEEDED", 0))) == (Step.MAKE_GROUP,)
    assert after(rules(("DeleteSelf", "SUCCEEDED", 0))) == (Step.DELETE_SELF,)


@pytest.mark.parametrize(
    ("reason", "job_status", "ago", "told_to_stop"),
    [
        ("DeadlineExceeded", "RUNNING", 10, True),
        ("JobStatusCheckTimeoutExceeded", "", 10, True),
        ("PreRunningDeadlineExceeded", "", 10, True),
        ("DeadlineExceeded", "FAILED", 10, False),
        ("DeadlineExceeded", "RUNNING", 301, False),
        ("AppFailed", "RUNNING", 10, False),
    ],
)
def test_a_job_that_was_given_up_is_told_to_stop(reason: str, job_status: str, ago: int, told_to_stop: bool) -> None:
    given = ended("Failed", {}, ago=ago, job_status=job_status, reason=reason)
    for stopped in (None, told("x"), failing(AWAY, seconds=5)):
        assert (Call.STOP in decide(seen(given, stopped=stopped)).calls) is told_to_stop


@pytest.mark.parametrize(
    ("job_status", "submitter", "there", "goes"),
    [
        ("", Submitter.ACTIVE, cluster(), True),
        ("RUNNING", Submitter.ACTIVE, cluster(), False),
        ("RUNNING", Submitter.ACTIVE, None, True),
        ("", Submitter.FAILED, None, False),
    ],
)
def test_a_submitter_does_not_submit_after_the_end(
    job_status: str, submitter: Submitter, there: Any, goes: bool
) -> None:
    """Nor does it wait for a cluster that is gone. One that prints the log of a job goes on."""
    given = ended("Failed", {}, ago=10, job_status=job_status, reason="DeadlineExceeded")
    decision = decide(seen(given, submitter=submitter, job_object=True, cluster=there))
    assert (Step.DELETE_SUBMITTER in decision.steps) is goes
    if goes:
        assert Call.STOP not in decision.calls, "its pod would submit the job after it was told to stop"
