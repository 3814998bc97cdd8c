"""The transition table of a RayJob, row by row, with both outcomes."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.ray.job import JobStatus
from gpu_control_plane.ray.dashboard.errors import NoAnswer, RequestRefused
from gpu_control_plane.ray.job.decide import decide
from gpu_control_plane.ray.job.events import JobEvent
from gpu_control_plane.ray.job.snapshot import Call, Decision, Snapshot, Step, Submitter
from unit.ray.job.builders import BEFORE, NOW, answered, cluster, failing, job, seen, selecting

AWAY = NoAnswer("Ray's dashboard did not answer in time")
HTTP = {"submissionMode": "HTTPMode"}
INTERACTIVE = {"submissionMode": "InteractiveMode"}
SIDECAR = {"submissionMode": "SidecarMode"}
LATE = {"activeDeadlineSeconds": 60}
TOO_LATE_TO_RUN = {"preRunningDeadlineSeconds": 60}
IN_TIME = {"activeDeadlineSeconds": 61}


def outcome(snapshot: Snapshot) -> tuple[str, str]:
    """The state that is decided, and the reason."""
    decision = decide(snapshot)
    return str(decision.status.job_deployment_status), decision.status.reason


# From nothing.


def test_a_new_job_gets_its_names_before_anything_is_made() -> None:
    decision = decide(seen(job()))
    assert decision.steps == (Step.ADD_FINALIZER, Step.WRITE_STATUS)
    status = decision.status
    assert (status.job_deployment_status, status.job_id, status.ray_cluster_name) == (
        "Initializing",
        "demo-abcde",
        "demo-abcde",
    )
    assert status.start_time == NOW


@pytest.mark.parametrize(
    ("given", "job_id", "cluster_name"),
    [
        (job(spec={"jobId": "mine"}), "mine", "demo-abcde"),
        (job(spec=INTERACTIVE), "", "demo-abcde"),
        (selecting(), "demo-abcde", "shared"),
    ],
)
def test_names_are_the_users_where_he_gives_them(given: Any, job_id: str, cluster_name: str) -> None:
    status = decide(seen(given)).status
    assert (status.job_id, status.ray_cluster_name) == (job_id, cluster_name)


@pytest.mark.parametrize(
    ("state", "spec", "problems", "then"),
    [
        ("", {}, ("no",), "ValidationFailed"),
        ("ValidationFailed", {}, ("no",), "ValidationFailed"),
        ("ValidationFailed", {}, (), "Initializing"),
        ("", {"suspend": True}, (), "Suspended"),
        ("Suspended", {"suspend": True}, (), "Suspended"),
        ("Suspended", {}, (), "Initializing"),
        ("Suspended", {}, ("no",), "ValidationFailed"),
        ("", {}, (), "Initializing"),
    ],
)
def test_before_it_begins(state: str, spec: dict[str, Any], problems: tuple[str, ...], then: str) -> None:
    assert outcome(seen(job(state, spec=spec), problems=problems))[0] == then


def test_a_problem_is_told_once() -> None:
    first = decide(seen(job(), problems=("no entrypoint",)))
    assert [event.reason for event in first.events] == [JobEvent.INVALID]
    held = job("ValidationFailed", reason="ValidationFailed", message="no entrypoint")
    again = decide(seen(held, problems=("no entrypoint",)))
    assert (again.events, again.status) == ((), held.status)


def test_a_corrected_job_goes_on_with_what_was_made_for_it() -> None:
    """KubeRay fails running jobs by a spec edit; what it has left is taken up again."""
    held = job("ValidationFailed", jobId="demo-x1", rayClusterName="demo-x1")
    status = decide(seen(held)).status
    assert (str(status.job_deployment_status), status.ray_cluster_name) == ("Initializing", "demo-x1")


# While the cluster comes up.


@pytest.mark.parametrize(
    ("given", "there", "then"),
    [
        (job("Initializing", spec={"suspend": True}), cluster(), ("Suspending", "")),
        (job("Initializing", spec=LATE), cluster(), ("Failed", "DeadlineExceeded")),
        (job("Initializing", spec=IN_TIME), cluster(None), ("Initializing", "")),
        (
            job("Initializing", spec={"preRunningDeadlineSeconds": 60}),
            cluster(None),
            ("Failed", "PreRunningDeadlineExceeded"),
        ),
        (job("Initializing", spec={"preRunningDeadlineSeconds": 61}), cluster(None), ("Initializing", "")),
        (job("Initializing"), None, ("Initializing", "")),
        (job("Initializing"), cluster(None), ("Initializing", "")),
        (job("Initializing"), cluster("suspended"), ("Initializing", "")),
        (job("Initializing"), cluster(deleting=True), ("Initializing", "")),
        (job("Initializing", spec=INTERACTIVE), cluster(), ("Waiting", "")),
        (job("Initializing"), cluster(), ("Running", "")),
        (job("Initializing", spec=HTTP), cluster(), ("Running", "")),
        (job("Initializing", spec=SIDECAR), cluster(), ("Running", "")),
        (selecting("Initializing"), None, ("Initializing", "")),
        (selecting("Initializing"), cluster(), ("Running", "")),
    ],
)
def test_while_the_cluster_comes_up(given: Any, there: Any, then: tuple[str, str]) -> None:
    assert outcome(seen(given, cluster=there)) == then


@pytest.mark.parametrize(
    ("given", "there", "step", "made"),
    [
        (job("Initializing"), None, Step.MAKE_CLUSTER, True),
        (selecting("Initializing"), None, Step.MAKE_CLUSTER, False),
        (job("Initializing"), cluster(None), Step.MAKE_CLUSTER, False),
        (job("Initializing"), cluster(None), Step.MAKE_SUBMITTER, False),
        (job("Initializing"), cluster(), Step.MAKE_SUBMITTER, True),
        (job("Initializing", spec=HTTP), cluster(), Step.MAKE_SUBMITTER, False),
        (job("Initializing", spec=SIDECAR), cluster(), Step.MAKE_SUBMITTER, False),
        (job("Initializing", spec=INTERACTIVE), cluster(), Step.MAKE_SUBMITTER, False),
        (job("Initializing"), cluster(), Step.MAKE_SERVICE, True),
        (selecting("Initializing"), cluster(), Step.MAKE_SERVICE, False),
    ],
)
def test_what_is_made_while_the_cluster_comes_up(given: Any, there: Any, step: Step, made: bool) -> None:
    assert (step in decide(seen(given, cluster=there)).steps) is made


@pytest.mark.parametrize(
    ("spec", "around"),
    [
        ({}, {"job_object": True, "submitter": Submitter.ACTIVE}),
        ({}, {"job_object": True, "submitter": Submitter.SUCCEEDED}),
        ({}, {"job_object": True, "submitter": Submitter.ACTIVE, "cluster": cluster(None)}),
        ({"suspend": True}, {"job_object": True, "submitter": Submitter.ACTIVE}),
        (SIDECAR, {"submitter": Submitter.SUCCEEDED, "cluster": cluster(None)}),
        (SIDECAR, {"submitter": Submitter.FAILED, "cluster": cluster(None)}),
    ],
)
def test_a_job_that_has_been_submitted_is_followed_before_any_clock_counts(spec: Any, around: dict[str, Any]) -> None:
    """The operator died before it wrote so, or the job was done before the last worker was up."""
    late = {**LATE, "preRunningDeadlineSeconds": 1, **spec}
    decision = decide(seen(job("Initializing", spec=late), **around))
    assert (str(decision.status.job_deployment_status), Call.FOLLOW in decision.calls) == ("Running", True)
    assert Step.MAKE_SUBMITTER not in decision.steps


@pytest.mark.parametrize(
    ("spec", "ray", "then"),
    [
        # the head submits before the workers are up
        ({}, answered("PENDING"), ("Running", "")),
        ({}, answered("RUNNING"), ("Running", "")),
        ({}, answered(None), ("Initializing", "")),
        ({}, failing(AWAY, seconds=999), ("Initializing", "")),
        # and what Ray says counts before the clocks, as far as it says something
        (LATE, answered("RUNNING"), ("Running", "")),
        (TOO_LATE_TO_RUN, answered("SUCCEEDED"), ("Running", "")),
        (TOO_LATE_TO_RUN, answered(None), ("Failed", "PreRunningDeadlineExceeded")),
        (LATE, answered(None), ("Failed", "DeadlineExceeded")),
        (LATE, None, ("Initializing", "")),
        (TOO_LATE_TO_RUN, None, ("Initializing", "")),
        (TOO_LATE_TO_RUN, failing(AWAY, seconds=29), ("Initializing", "")),
        (TOO_LATE_TO_RUN, failing(AWAY, seconds=30), ("Failed", "PreRunningDeadlineExceeded")),
        ({"suspend": True}, None, ("Initializing", "")),
        ({"suspend": True}, answered("RUNNING"), ("Running", "")),
        ({"suspend": True}, answered(None), ("Suspending", "")),
    ],
)
def test_a_job_that_the_head_submits_is_looked_for_while_the_workers_come_up(
    spec: dict[str, Any], ray: Any, then: tuple[str, str]
) -> None:
    given = job("Initializing", spec={**SIDECAR, **spec})
    around = {"cluster": cluster(None), "submitter": Submitter.ACTIVE, "ray": ray}
    decision = decide(seen(given, **around))
    assert outcome(seen(given, **around)) == then
    assert (Call.FOLLOW in decision.calls) is (then[0] in {"Initializing", "Running"})


def test_a_head_that_is_not_there_is_not_asked() -> None:
    given = job("Initializing", spec={**SIDECAR, **TOO_LATE_TO_RUN})
    assert decide(seen(job("Initializing", spec=SIDECAR), cluster=cluster(None), head=False)).calls == frozenset()
    assert outcome(seen(given, cluster=cluster(None), head=False)) == ("Failed", "PreRunningDeadlineExceeded")


def test_a_job_on_a_selected_cluster_is_not_suspended() -> None:
    """It could not be stopped there, and would run a second time when resumed."""
    suspended = {"suspend": True}
    assert outcome(seen(selecting("Initializing", spec=suspended), cluster=cluster(None)))[0] == "Initializing"
    assert outcome(seen(selecting("Waiting", spec={**suspended, **INTERACTIVE}), cluster=cluster()))[0] == "Waiting"
    assert (
        outcome(seen(selecting("Running", spec=suspended), cluster=cluster(), ray=answered("RUNNING")))[0] == "Running"
    )


def test_what_was_made_before_goes_when_a_corrected_job_is_suspended() -> None:
    held = job("ValidationFailed", spec={"suspend": True}, jobId="demo-x1", rayClusterName="demo-x1")
    assert outcome(seen(held))[0] == "Suspending"


@pytest.mark.parametrize("end", [NOW + timedelta(days=1), NOW.replace(year=9999, month=12, day=31, hour=23, minute=59)])
def test_an_end_in_the_future_of_another_clock_is_waited_for_no_longer(end: Any) -> None:
    around = {"submitter": Submitter.ACTIVE, "job_object": True}
    decision = decide(seen(job("Running"), ray=answered("SUCCEEDED", ended=end, seconds_ago=100), **around))
    assert decision.again_in == timedelta(seconds=200)


def test_a_spec_edit_that_is_not_valid_submits_nothing_and_is_forgotten_when_corrected() -> None:
    held = decide(seen(job("Initializing"), problems=("no",)))
    assert (held.status.job_deployment_status, held.status.message) == ("Initializing", "no")
    assert held.steps == (Step.WRITE_STATUS,)
    edited = job("Initializing", reason="ValidationFailed", message="no")
    corrected = decide(seen(edited)).status
    assert (corrected.job_deployment_status, corrected.reason, corrected.message) == ("Running", "", "")


def test_a_deadline_is_kept_while_the_spec_is_not_valid() -> None:
    assert decide(seen(job("Initializing", spec=IN_TIME), problems=("no",))).again_in == timedelta(seconds=1)


def test_a_running_job_is_not_failed_by_a_spec_edit() -> None:
    assert outcome(seen(job("Running"), ray=answered("RUNNING"), problems=("no",))) == ("Running", "")


@pytest.mark.parametrize(
    ("given", "then"),
    [
        (job("Waiting", spec=INTERACTIVE), ("Waiting", "")),
        (job("Waiting", spec={**INTERACTIVE, "jobId": "mine"}), ("Running", "")),
        (job("Waiting", spec={**INTERACTIVE, "suspend": True}), ("Suspending", "")),
        (
            job("Waiting", spec={**INTERACTIVE, "preRunningDeadlineSeconds": 60}),
            ("Failed", "PreRunningDeadlineExceeded"),
        ),
        (job("Waiting", spec={**INTERACTIVE, "preRunningDeadlineSeconds": 61}), ("Waiting", "")),
    ],
)
def test_while_a_person_is_waited_for(given: Any, then: tuple[str, str]) -> None:
    assert outcome(seen(given)) == then


def test_the_id_that_a_person_gives_is_followed() -> None:
    decision = decide(seen(job("Waiting", spec={**INTERACTIVE, "jobId": "mine"})))
    assert decision.status.job_id == "mine"
    assert decision.calls == {Call.FOLLOW}


# While it runs.

ENDED_NOW, ENDED_LONG_AGO = NOW, NOW - timedelta(seconds=300)


@pytest.mark.parametrize(
    ("spec", "around", "then"),
    [
        # suspend, deadline
        ({"suspend": True}, {"ray": answered("RUNNING")}, ("Suspending", "")),
        (LATE, {"ray": answered("RUNNING")}, ("Failed", "DeadlineExceeded")),
        (IN_TIME, {"ray": answered("RUNNING")}, ("Running", "")),
        # what Ray says of the end counts before both
        ({"suspend": True}, {"ray": answered("SUCCEEDED")}, ("Complete", "")),
        (LATE, {"ray": answered("SUCCEEDED")}, ("Complete", "")),
        (LATE, {"ray": answered("FAILED")}, ("Failed", "AppFailed")),
        # and is waited for before a clock is believed
        ({"suspend": True}, {"ray": None}, ("Running", "")),
        (LATE, {"ray": None}, ("Running", "")),
        (LATE, {"ray": failing(AWAY, seconds=29)}, ("Running", "")),
        (LATE, {"ray": failing(AWAY, seconds=30)}, ("Failed", "DeadlineExceeded")),
        # the end, and a submitter that has not ended
        ({}, {"ray": answered("SUCCEEDED", ended=ENDED_NOW), "submitter": Submitter.ACTIVE}, ("Running", "")),
        (
            {},
            {"ray": answered("SUCCEEDED", ended=ENDED_LONG_AGO), "submitter": Submitter.ACTIVE},
            ("Complete", "JobDeploymentStatusTransitionGracePeriodExceeded"),
        ),
        (
            {},
            {"ray": answered("FAILED", ended=ENDED_LONG_AGO), "submitter": Submitter.ACTIVE},
            ("Failed", "JobDeploymentStatusTransitionGracePeriodExceeded"),
        ),
        ({}, {"ray": answered("SUCCEEDED", seconds_ago=299), "submitter": Submitter.ACTIVE}, ("Running", "")),
        (
            {},
            {"ray": answered("STOPPED", seconds_ago=300), "submitter": Submitter.ACTIVE},
            ("Complete", "JobDeploymentStatusTransitionGracePeriodExceeded"),
        ),
        ({}, {"ray": answered("SUCCEEDED"), "submitter": Submitter.SUCCEEDED}, ("Complete", "")),
        ({}, {"ray": answered("SUCCEEDED"), "submitter": Submitter.FAILED}, ("Complete", "")),
        ({}, {"ray": answered("SUCCEEDED"), "submitter": Submitter.MISSING}, ("Complete", "")),
        ({}, {"ray": answered("STOPPED"), "submitter": Submitter.FAILED}, ("Complete", "")),
        ({}, {"ray": answered("FAILED"), "submitter": Submitter.FAILED}, ("Failed", "AppFailed")),
        (HTTP, {"ray": answered("SUCCEEDED")}, ("Complete", "")),
        (HTTP, {"ray": answered("FAILED")}, ("Failed", "AppFailed")),
        # Ray does not answer
        ({}, {"ray": failing(AWAY, seconds=299), "submitter": Submitter.ACTIVE}, ("Running", "")),
        (
            {},
            {"ray": failing(AWAY, seconds=300), "submitter": Submitter.ACTIVE},
            ("Failed", "JobStatusCheckTimeoutExceeded"),
        ),
        ({}, {"ray": failing(AWAY, seconds=29), "submitter": Submitter.SUCCEEDED}, ("Running", "")),
        (
            {},
            {"ray": failing(AWAY, seconds=30), "submitter": Submitter.SUCCEEDED},
            ("Failed", "JobDeploymentStatusTransitionGracePeriodExceeded"),
        ),
        ({}, {"ray": failing(AWAY, seconds=29), "submitter": Submitter.FAILED}, ("Running", "")),
        ({}, {"ray": failing(AWAY, seconds=30), "submitter": Submitter.FAILED}, ("Failed", "SubmissionFailed")),
        # Ray has it, so its submitter does not matter
        ({}, {"ray": answered("RUNNING"), "submitter": Submitter.FAILED}, ("Running", "")),
        ({}, {"ray": answered("RUNNING", seconds_ago=99), "submitter": Submitter.SUCCEEDED}, ("Running", "")),
        ({}, {"ray": answered("PENDING"), "submitter": Submitter.ACTIVE}, ("Running", "")),
        # Ray does not know it
        ({}, {"ray": answered(None), "submitter": Submitter.ACTIVE}, ("Running", "")),
        ({}, {"ray": answered(None), "submitter": Submitter.SUCCEEDED}, ("Failed", "AppFailed")),
        ({}, {"ray": answered(None), "submitter": Submitter.FAILED}, ("Failed", "SubmissionFailed")),
        ({}, {"ray": answered(None), "submitter": Submitter.MISSING}, ("Failed", "SubmissionFailed")),
        (HTTP, {"ray": answered(None)}, ("Running", "")),
        (INTERACTIVE, {"ray": answered(None)}, ("Running", "")),
        # there is nothing left to ask
        ({}, {"ray": answered("RUNNING"), "cluster": None}, ("Failed", "AppFailed")),
        (SIDECAR, {"ray": answered("RUNNING"), "head": False}, ("Failed", "AppFailed")),
        # nothing submits any more where the head is gone that did
        (
            SIDECAR,
            {"ray": answered("SUCCEEDED", ended=ENDED_NOW), "submitter": Submitter.ACTIVE, "head": False},
            ("Complete", ""),
        ),
        (SIDECAR, {"ray": answered("SUCCEEDED", ended=ENDED_NOW), "submitter": Submitter.ACTIVE}, ("Running", "")),
        (SIDECAR, {"ray": answered("RUNNING"), "submitter": Submitter.ACTIVE}, ("Running", "")),
        ({}, {"ray": answered("RUNNING"), "head": False, "submitter": Submitter.ACTIVE}, ("Running", "")),
        ({}, {"ray": answered("SUCCEEDED"), "cluster": None}, ("Complete", "")),
    ],
)
def test_while_it_runs(spec: dict[str, Any], around: dict[str, Any], then: tuple[str, str]) -> None:
    assert outcome(seen(job("Running", spec=spec), **around)) == then


def test_an_end_that_ray_has_told_before_counts_when_nothing_can_be_asked_any_more() -> None:
    recorded = job("Running", jobStatus="SUCCEEDED")
    assert outcome(seen(recorded, cluster=None, submitter=Submitter.MISSING)) == ("Complete", "")


@pytest.mark.parametrize(
    ("job_status", "seconds", "then"),
    [
        ("RUNNING", 30, ("Running", "")),
        ("PENDING", 299, ("Running", "")),
        ("RUNNING", 300, ("Failed", "JobStatusCheckTimeoutExceeded")),
    ],
)
def test_a_job_that_ray_had_is_not_failed_for_its_submitter_while_ray_is_silent(
    job_status: str, seconds: int, then: tuple[str, str]
) -> None:
    held = job("Running", jobStatus=job_status)
    assert outcome(seen(held, ray=failing(AWAY, seconds=seconds), submitter=Submitter.FAILED)) == then


def test_a_person_is_told_once_that_ray_has_lost_the_job() -> None:
    held = job("Running", spec=INTERACTIVE, jobStatus="RUNNING", message="Job is currently running.")
    first = decide(seen(held, ray=answered(None, seconds_ago=5)))
    status = first.status
    message = "Ray no longer knows the job: submit it again under the ID demo-x1, or delete the RayJob"
    assert (status.job_deployment_status, status.job_status) == ("Running", "RUNNING")
    assert (status.reason, status.message) == ("JobLost", message)
    assert status.job_status_check_failure_start_time == NOW - timedelta(seconds=5)
    assert [(event.reason, event.warning) for event in first.events] == [(JobEvent.LOST, True)]

    again = decide(seen(replace(held, status=status), ray=answered(None)))
    assert (again.status, again.events) == (status, ())
    found = decide(seen(replace(held, status=status), ray=answered("RUNNING", message="it runs"))).status
    assert (found.reason, found.message, found.job_status_check_failure_start_time) == ("", "it runs", None)


@pytest.mark.parametrize(
    ("spec", "around", "message"),
    [
        ({}, {"ray": failing(AWAY, seconds=45), "submitter": Submitter.ACTIVE}, str(AWAY)),
        (HTTP, {"ray": answered(None), "submitted": failing(RequestRefused(500, "busy"), seconds=5)}, "busy"),
        ({}, {"ray": answered(None), "submitter": Submitter.ACTIVE}, ""),
    ],
)
def test_why_ray_does_not_have_a_job_is_in_its_status(spec: Any, around: dict[str, Any], message: str) -> None:
    assert decide(seen(job("Running", spec=spec, message="before"), **around)).status.message == message
    running = job("Running", spec=spec, jobStatus="RUNNING", message="before")
    if around["ray"].error is not None:
        assert decide(seen(running, **around)).status.message == "before"


def test_http_submits_when_ray_does_not_know_the_job() -> None:
    assert decide(seen(job("Running", spec=HTTP), ray=answered(None))).calls == {Call.FOLLOW, Call.SUBMIT}


@pytest.mark.parametrize("ray", [None, failing(AWAY, seconds=60), answered("PENDING"), answered("RUNNING")])
def test_http_does_not_submit_without_knowing_that_ray_has_no_such_job(ray: Any) -> None:
    assert decide(seen(job("Running", spec=HTTP), ray=ray)).calls == {Call.FOLLOW}


@pytest.mark.parametrize("ray", [None, answered("RUNNING"), failing(AWAY, seconds=60)])
def test_a_submission_that_has_succeeded_is_kept_in_mind(ray: Any) -> None:
    decision = decide(seen(job("Running", spec=HTTP), ray=ray, submitted=answered("x")))
    assert decision.calls == {Call.FOLLOW, Call.SUBMIT}


def test_a_job_that_ray_has_had_is_not_submitted_again() -> None:
    had = job("Running", spec=HTTP, jobStatus="RUNNING")
    decision = decide(seen(had, ray=answered(None)))
    assert (decision.status.job_deployment_status, decision.status.reason) == ("Failed", "AppFailed")
    submitted = answered("x")
    decision = decide(seen(job("Running", spec=HTTP), ray=answered(None), submitted=submitted))
    assert decision.status.job_deployment_status == "Failed"
    assert Call.SUBMIT not in decision.calls


@pytest.mark.parametrize(
    ("error", "seconds", "then"),
    [
        (RequestRefused(400, "bad runtime env"), 0, ("Failed", "SubmissionFailed")),
        (RequestRefused(500, "busy"), 299, ("Running", "")),
        (RequestRefused(500, "busy"), 300, ("Failed", "SubmissionFailed")),
    ],
)
def test_a_submission_that_is_refused(error: Any, seconds: int, then: tuple[str, str]) -> None:
    submitted = failing(error, seconds=seconds)
    assert outcome(seen(job("Running", spec=HTTP), ray=answered(None), submitted=submitted)) == then


def test_since_when_ray_does_not_answer_is_in_the_status_and_goes_with_the_next_answer() -> None:
    decision = decide(seen(job("Running"), ray=failing(AWAY, seconds=45), submitter=Submitter.ACTIVE))
    assert decision.status.job_status_check_failure_start_time == NOW - timedelta(seconds=45)
    assert [event.reason for event in decision.events] == [JobEvent.NOT_REACHED]
    held = job("Running", jobStatusCheckFailureStartTime=BEFORE)
    decision = decide(seen(held, ray=answered("RUNNING")))
    assert decision.status.job_status_check_failure_start_time is None


def test_the_time_of_failing_checks_in_the_status_fails_no_job() -> None:
    """It may be from before the operator was away; what counts is what this process has seen."""
    held = job("Running", jobStatusCheckFailureStartTime=NOW - timedelta(hours=3))
    assert outcome(seen(held, ray=failing(AWAY, seconds=10))) == ("Running", "")


@pytest.mark.parametrize(
    ("given", "around", "left"),
    [
        (job("Running", spec={"activeDeadlineSeconds": 100}), {"ray": answered("RUNNING")}, 40),
        (job("Initializing", spec={"preRunningDeadlineSeconds": 90}), {"cluster": cluster(None)}, 30),
        (job("Running"), {"ray": None}, 30),
        (job("Running"), {"ray": failing(AWAY, seconds=100)}, 200),
        (job("Running"), {"ray": answered("SUCCEEDED", ended=BEFORE), "submitter": Submitter.ACTIVE}, 240),
        (job("Running"), {"ray": answered("RUNNING")}, None),
    ],
)
def test_it_looks_again_when_a_time_runs_out(given: Any, around: dict[str, Any], left: int | None) -> None:
    again = decide(seen(given, **around)).again_in
    assert again == (timedelta(seconds=left) if left is not None else None)


# Retries.


@pytest.mark.parametrize(
    ("spec", "failed", "around", "then"),
    [
        ({"backoffLimit": 1}, 0, {"ray": answered("FAILED")}, "Retrying"),
        ({"backoffLimit": 1}, 1, {"ray": answered("FAILED")}, "Failed"),
        ({"backoffLimit": 0}, 0, {"ray": answered("FAILED")}, "Failed"),
        ({"backoffLimit": 9, **LATE}, 0, {"ray": answered("RUNNING")}, "Failed"),
        ({"backoffLimit": 9}, 0, {"ray": failing(AWAY, seconds=300)}, "Failed"),
        ({"backoffLimit": 9}, 0, {"ray": answered(None), "submitter": Submitter.FAILED}, "Retrying"),
    ],
)
def test_a_failure_is_retried_while_the_spec_allows(
    spec: dict[str, Any], failed: int, around: dict[str, Any], then: str
) -> None:
    decision = decide(seen(job("Running", spec=spec, failed=failed), **around))
    assert decision.status.job_deployment_status == then
    assert decision.status.failed == failed + 1
    assert (decision.status.end_time is None) is (then == "Retrying")


def test_each_try_has_its_own_cluster_and_start() -> None:
    retrying = job("Retrying", failed=1, reason="AppFailed", jobStatus="FAILED")
    assert decide(seen(retrying)).steps == (Step.DELETE_CLUSTERS,)
    gone = decide(seen(retrying, cluster=None)).status
    assert (gone.job_deployment_status, gone.ray_cluster_name, gone.job_id, gone.failed) == ("", "", "", 1)
    assert (gone.job_status, gone.reason) == (JobStatus.NEW, "")


@pytest.mark.parametrize(
    ("state", "around", "steps"),
    [
        ("Suspending", {"job_object": True}, (Step.DELETE_SUBMITTER, Step.DELETE_CLUSTERS)),
        ("Suspending", {"cluster": None, "job_object": True}, (Step.DELETE_SUBMITTER,)),
        ("Suspending", {"cluster": cluster(deleting=True)}, ()),
        ("Retrying", {"job_object": True}, (Step.DELETE_SUBMITTER, Step.DELETE_CLUSTERS)),
    ],
)
def test_taking_down_waits_until_all_is_gone(state: str, around: dict[str, Any], steps: tuple[Step, ...]) -> None:
    decision = decide(seen(job(state), **around))
    assert (str(decision.status.job_deployment_status), decision.steps) == (state, steps)


def test_a_suspended_job_has_no_names_and_keeps_its_counts() -> None:
    status = decide(seen(job("Suspending", succeeded=1, failed=2), cluster=None)).status
    assert (str(status.job_deployment_status), status.ray_cluster_name, status.succeeded, status.failed) == (
        "Suspended",
        "",
        1,
        2,
    )


# The end.


def test_what_ray_says_last_is_in_the_status() -> None:
    ended = NOW - timedelta(seconds=5)
    status = decide(seen(job("Running", spec=HTTP), ray=answered("FAILED", ended=ended, message="exit 3"))).status
    assert (status.job_status, status.message, status.end_time) == (JobStatus.FAILED, "exit 3", NOW)
    assert status.ray_job_info is not None
    assert status.ray_job_info.end_time == ended
    status = decide(seen(job("Running", spec=HTTP), ray=answered("SUCCEEDED"))).status
    assert (status.succeeded, status.failed) == (1, 0)


def test_a_deleted_job_that_has_ended_is_let_go_at_once() -> None:
    deleting = {"deletionTimestamp": NOW}
    assert decide(seen(job("Complete", metadata=deleting, jobStatus="SUCCEEDED"))).steps == (Step.REMOVE_FINALIZER,)
    assert decide(seen(job("Initializing", metadata=deleting))).steps == (Step.REMOVE_FINALIZER,)


@pytest.mark.parametrize(
    ("given", "stopped", "finalized"),
    [
        (job, None, False),
        (job, answered("x"), True),
        (job, failing(AWAY, seconds=0), True),
        (selecting, None, False),
        (selecting, answered("x"), True),
        (selecting, failing(AWAY, seconds=29), False),
        (selecting, failing(AWAY, seconds=30), True),
    ],
)
def test_a_deleted_job_that_runs_is_told_to_stop_first(given: Any, stopped: Any, finalized: bool) -> None:
    running = given("Running", jobStatus="RUNNING")
    running = _deleting(running)
    decision = decide(seen(running, cluster=cluster(), stopped=stopped))
    assert (Step.REMOVE_FINALIZER in decision.steps) is finalized
    assert (Call.STOP in decision.calls) is not finalized


def test_on_a_cluster_that_stays_the_submitter_goes_before_the_job_is_told_to_stop() -> None:
    decision = decide(seen(_deleting(selecting("Running")), cluster=cluster(), job_object=True))
    assert (decision.steps, decision.calls) == ((Step.DELETE_SUBMITTER,), frozenset())
    crashed = decide(seen(_deleting(selecting("Initializing")), cluster=cluster(), job_object=True))
    assert crashed.steps == (Step.DELETE_SUBMITTER,)
    without = decide(seen(_deleting(selecting("Initializing")), cluster=cluster()))
    assert (without.steps, without.calls) == ((), frozenset({Call.STOP}))


def _deleting(given: Any) -> Any:

    return replace(given, metadata=replace(given.metadata, deletion_timestamp=NOW))


def test_decisions_settle() -> None:
    """What has been decided is decided again from its own outcome, with nothing to write."""
    for given, around in (
        (job("Running"), {"ray": answered("RUNNING"), "submitter": Submitter.ACTIVE}),
        (job("Initializing"), {"cluster": cluster(None)}),
        (job("Suspended", spec={"suspend": True}), {}),
    ):
        first: Decision = decide(seen(given, **around))
        held = _with(given, first)
        assert decide(seen(held, **around)).status == first.status


def _with(given: Any, decision: Decision) -> Any:

    return replace(given, status=decision.status)
