"""Random histories of a RayJob: the operator dies between any two writes, Ray and submitters act when they like, and
time passes. Each try is submitted at most once, there is never a second cluster, and the end is what Ray says.

The world is a model of an API server and of Ray; the decisions are the real ones.
"""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import ClusterState, RayCluster
from gpu_control_plane.api.ray.job import JobStatus, RayJob
from gpu_control_plane.api.ray.names import Finalizer
from gpu_control_plane.ray.dashboard.calls import Answer
from gpu_control_plane.ray.dashboard.errors import NoAnswer
from gpu_control_plane.ray.dashboard.models import JobDetails
from gpu_control_plane.ray.job.decide import decide
from gpu_control_plane.ray.job.snapshot import Call, Decision, Snapshot, Step, Submitter
from gpu_control_plane.ray.job.submission import call_name
from unit.ray.job.builders import NOW, cluster, job

MODES = ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")
CLOCKS = ("DeadlineExceeded", "PreRunningDeadlineExceeded")
EVENTS = (
    *("reconcile", "answer", "submitter acts", "ready", "gone") * 3,
    "crash after 0",
    "crash after 1",
    "crash after 2",
    "restart",
    "person submits",
    "runs",
    "ends",
    "lost answer",
    "down",
    "up",
    "second",
    "hour",
    "suspend",
    "resume",
    "invalid",
    "corrected",
    "head restarts",
)


class World:
    """What is in the API server and in Ray, and what the operator remembers."""

    def __init__(self, mode: str, fates: list[str], backoff_limit: int, **deadlines: int | None) -> None:
        self.job: RayJob = job(spec={"submissionMode": mode, "backoffLimit": backoff_limit, **deadlines})
        self.mode = mode
        self.fates = fates
        """How the tries end, in their order."""
        self.now: datetime = NOW
        self.clusters: dict[str, RayCluster] = {}
        self.made: list[str] = []
        """Names of clusters that were made, in their order."""
        self.submitter: Submitter | None = None
        """The Job of Kubernetes, if it is there."""
        self.beside_head = Submitter.ACTIVE
        """The container of the head that submits; with `SidecarMode`."""
        self.head = True
        """Whether the cluster that is there has its head."""
        self.jobs: dict[tuple[str, str], JobStatus] = {}
        """What Ray has, by cluster and ID."""
        self.submissions: list[tuple[str, str]] = []
        self.down = False
        self.was_down = False
        self.answers: dict[str, Answer[Any]] = {}
        self.asked: dict[str, Call] = {}
        self.names = 0
        self.problems: tuple[str, ...] = ()
        self.heads_lost = False
        self.heard: set[tuple[str, str]] = set()
        """Jobs of which the operator knows that Ray has them."""

    # The operator.

    def look(self) -> Snapshot:
        held = self.job
        there = self.clusters.get(held.status.ray_cluster_name)
        submitter = {
            "K8sJobMode": self.submitter or Submitter.MISSING,
            "SidecarMode": self.beside_head if there is not None and self.head else Submitter.ACTIVE,
        }.get(self.mode, Submitter.NONE)
        submitted = self.answers.get(call_name(held, Call.SUBMIT, submitter, submitted=False))
        done = submitted is not None and submitted.error is None
        return Snapshot(
            job=held,
            now=self.now,
            suffix=f"{self.names:05}",
            cluster=there,
            own_clusters=tuple(self.clusters.values()),
            submitter=submitter,
            job_object=self.submitter is not None,
            head=there is not None and self.head,
            ray=self.answers.get(call_name(held, Call.FOLLOW, submitter, submitted=done)),
            submitted=submitted,
            problems=self.problems,
        )

    def reconcile(self, crash_after: int | None = None) -> bool:
        """One reconcile; whether anything was written. The operator dies before the write of that number."""
        seen = self.look()
        decision = decide(seen)
        check_clocks(seen, decision)
        self.names += 1
        written = False
        for step in decision.steps:
            if crash_after is not None and crash_after <= 0:
                self.restart()
                return written
            if self.carry_out(step, decision):
                written = True
                crash_after = crash_after - 1 if crash_after is not None else None
        if crash_after is not None:
            self.restart()
            return written
        done = seen.submitted is not None and seen.submitted.error is None
        names = {call_name(self.job, call, seen.submitter, submitted=done): call for call in decision.calls}
        self.answers = {name: answer for name, answer in self.answers.items() if name in names}
        new = names.keys() - self.asked.keys()
        self.asked = names
        return written or bool(new)

    def carry_out(self, step: Step, decision: Decision) -> bool:
        match step:
            case Step.WRITE_STATUS:
                changed = self.job.status != decision.status
                self.job = replace(self.job, status=decision.status)
                return changed
            case Step.ADD_FINALIZER:
                finalizers = (Finalizer.JOB.value,)
                self.job = replace(self.job, metadata=replace(self.job.metadata, finalizers=finalizers))
            case Step.MAKE_CLUSTER:
                name = self.job.status.ray_cluster_name
                assert name not in self.clusters
                assert name not in self.made, "a cluster was made twice"
                self.made.append(name)
                self.clusters[name] = msgspec.structs.replace(
                    cluster(None), metadata=replace(cluster().metadata, name=name)
                )
                assert len(self.clusters) == 1, "two clusters at once"
                self.beside_head, self.head = Submitter.ACTIVE, True
            case Step.MAKE_SUBMITTER:
                if self.submitter is not None:
                    return False
                self.submitter = Submitter.ACTIVE
            case Step.DELETE_CLUSTERS:
                self.clusters = {
                    name: replace(held, metadata=replace(held.metadata, deletion_timestamp=self.now))
                    for name, held in self.clusters.items()
                }
            case Step.DELETE_SUBMITTER:
                self.submitter = None
            case _:
                return False
        return True

    def restart(self) -> None:
        self.answers, self.asked = {}, {}
        if self.job.status.job_status is JobStatus.NEW:
            self.heard.clear()

    def answer(self, *, lost: bool = False) -> None:
        """Calls that are asked for are made."""
        for name, call in list(self.asked.items()):
            held = self.answers.get(name)
            if call is Call.SUBMIT and held is not None and held.error is None:
                continue
            value, error = None, None
            if self.down or not self.head or self.job.status.ray_cluster_name not in self.clusters:
                error = NoAnswer("away")
            else:
                value = self.ask(call)
            if lost and call is Call.SUBMIT:
                value, error = None, NoAnswer("lost")
            if error is None and value is not None:
                self.heard.add((self.job.status.ray_cluster_name, self.job.status.job_id))
            same = held is not None and (held.error is None) == (error is None) and held.value == value
            since = held.since if held is not None and same else self.now
            self.answers[name] = Answer(value=value, error=error, at=self.now, since=since)

    def ask(self, call: Call) -> object:
        key = (self.job.status.ray_cluster_name, self.job.status.job_id)
        if call is Call.FOLLOW:
            held = self.jobs.get(key)
            return None if held is None else JobDetails(status=held)
        if call is Call.STOP:
            running = key in self.jobs and not self.jobs[key].terminal
            self.jobs |= {key: JobStatus.STOPPED} if running else {}
            return running
        self.submit(key)
        return key[1]

    # Ray, and those who submit to it.

    def submit(self, key: tuple[str, str]) -> None:
        if key not in self.jobs and key[0] in self.clusters:
            assert key not in self.submissions or key not in self.heard or self.mode != "HTTPMode", "submitted again"
            self.jobs[key] = JobStatus.PENDING
            self.submissions.append(key)

    def submitter_acts(self) -> None:
        key = (self.job.status.ray_cluster_name, self.job.status.job_id)
        beside = self.mode == "SidecarMode"
        acting = self.beside_head if beside else self.submitter
        if acting is not Submitter.ACTIVE or key[0] not in self.clusters or not self.head:
            return
        held = self.jobs.get(key)
        if held is None:
            self.submit(key)
        elif held.terminal:
            ended = Submitter.FAILED if held is JobStatus.FAILED else Submitter.SUCCEEDED
            self.beside_head = ended if beside else self.beside_head
            self.submitter = self.submitter if beside else ended

    def person_submits(self) -> None:
        """A person submits the job when the cluster is up, and again if its head has lost it."""
        status = self.job.status
        if self.mode != "InteractiveMode":
            return
        if status.job_deployment_status == "Waiting":
            job_id = f"person-{len(self.made)}"
            self.job = replace(self.job, spec=replace(self.job.spec, job_id=job_id))
            self.submit((status.ray_cluster_name, job_id))
        elif status.job_deployment_status == "Running":
            self.submit((status.ray_cluster_name, status.job_id))

    def move(self, event: str) -> None:  # noqa: C901, PLR0912 - a case for each event
        match event:
            case "reconcile":
                self.reconcile()
            case "crash after 0" | "crash after 1" | "crash after 2":
                self.reconcile(int(event[-1]))
            case "restart":
                self.restart()
            case "ready":
                self.clusters = {
                    name: replace(held, status=replace(held.status, state=ClusterState.READY))
                    for name, held in self.clusters.items()
                }
            case "submitter acts":
                self.submitter_acts()
            case "person submits":
                self.person_submits()
            case "runs":
                self.jobs = {key: JobStatus.RUNNING if not held.terminal else held for key, held in self.jobs.items()}
            case "ends":
                self.jobs = {key: held if held.terminal else self.fate(key) for key, held in self.jobs.items()}
            case "answer" | "lost answer":
                self.answer(lost=event == "lost answer")
            case "down" | "up":
                self.down = event == "down"
                self.was_down |= self.down
            case "second" | "hour":
                self.now += timedelta(seconds=1) if event == "second" else timedelta(hours=1)
            case "gone":
                kept = {name: held for name, held in self.clusters.items() if not held.deleting}
                self.jobs = {key: held for key, held in self.jobs.items() if key[0] in kept}
                self.clusters = kept
            case "invalid" | "corrected":
                self.problems = ("no",) if event == "invalid" else ()
            case "head restarts":
                self.heads_lost |= any(not held.terminal for held in self.jobs.values())
                self.jobs = {key: held for key, held in self.jobs.items() if held.terminal}
                if self.mode == "SidecarMode" and self.clusters:
                    # The head of a cluster that has been up once is not made anew.
                    self.heads_lost = True
                    self.head = all(held.status.state is not ClusterState.READY for held in self.clusters.values())
                    self.beside_head = Submitter.ACTIVE
            case "suspend" | "resume":
                self.job = replace(self.job, spec=replace(self.job.spec, suspend=event == "suspend"))

    def fate(self, key: tuple[str, str]) -> JobStatus:
        tries = list(dict.fromkeys(self.submissions))
        return JobStatus(self.fates[min(tries.index(key), len(self.fates) - 1)])

    def finish(self) -> None:
        """Nothing fails any more, and everybody does his part until all is at rest."""
        self.move("up")
        self.move("resume")
        self.move("corrected")
        for _ in range(200):
            for event in (
                "gone",
                "ready",
                "person submits",
                "submitter acts",
                "runs",
                "ends",
                "submitter acts",
                "answer",
            ):
                self.move(event)
            self.move("second")
            if not self.reconcile() and str(self.job.status.job_deployment_status) in ("Complete", "Failed"):
                return
        raise AssertionError(f"it never comes to rest: {self.job.status}")


def check_clocks(seen: Snapshot, decision: Decision) -> None:
    """Our clocks end no job before Ray has been heard about it, where Ray may have it."""
    begins = decision.status.reason in CLOCKS and seen.job.status.reason not in CLOCKS
    running = str(seen.job.status.job_deployment_status) == "Running"
    beside = seen.job.spec.submission_mode == "SidecarMode" and seen.head
    if begins and (running or beside):
        assert seen.ray is not None, "Ray was not asked"
        told = seen.ray.value
        assert told is None or not told.status.terminal, "a job that has ended was failed"
        assert told is None or decision.status.reason == "DeadlineExceeded", "a job that runs did not begin in time"


DEADLINES = st.sampled_from([None, 30, 1800, 9000])
HISTORIES = st.lists(st.sampled_from(EVENTS), min_size=20, max_size=80)


@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None, max_examples=300)
@given(
    events=HISTORIES,
    fates=st.lists(st.sampled_from(["SUCCEEDED", "FAILED", "STOPPED"]), min_size=1, max_size=3),
    backoff_limit=st.integers(0, 2),
    deadline=DEADLINES,
    pre_running=DEADLINES,
)
def test_each_try_is_submitted_once_and_the_end_is_what_ray_says(
    *,
    mode: str,
    events: list[str],
    fates: list[str],
    backoff_limit: int,
    deadline: int | None,
    pre_running: int | None,
) -> None:
    world = World(mode, fates, backoff_limit, activeDeadlineSeconds=deadline, preRunningDeadlineSeconds=pre_running)
    for event in events:
        world.move(event)
    world.finish()
    status = world.job.status
    assert len(world.made) == len(set(world.made))
    last = world.jobs.get((status.ray_cluster_name, status.job_id))
    if not world.heads_lost:
        assert len(set(world.submissions)) == len(world.submissions), "a job was submitted twice"
    if status.reason in CLOCKS:
        assert deadline is not None or pre_running is not None
        assert str(status.job_deployment_status) == "Failed"
    elif not world.heads_lost and not world.was_down:
        assert last is not None
        assert status.job_status is last
        assert str(status.job_deployment_status) == ("Failed" if last is JobStatus.FAILED else "Complete")
        assert status.failed <= backoff_limit + 1
        if last is JobStatus.FAILED:
            assert status.failed == backoff_limit + 1
    elif last is JobStatus.SUCCEEDED and str(status.job_deployment_status) == "Failed":
        # Only what Ray could not say for as long as the table allows, or at all: its head is gone for good.
        assert world.was_down or not world.head
