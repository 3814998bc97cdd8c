"""What counts as waiting, since when, and which reason people are given."""

from datetime import timedelta
from typing import Any

import pytest

from gpu_control_plane.kube.objects import Object
from gpu_control_plane.ray.waiting.decide import group_why
from unit.ray.waiting.builders import NAMESPACE, NOON, cluster, condition, job, lookup, service, worker

HALF_PAST = NOON - timedelta(minutes=30)
HOURS_AGO = NOON - timedelta(hours=5)


def test_workers_without_a_node_that_ask_for_cards_wait() -> None:
    ray = cluster()
    found = lookup(
        ray,
        worker(1, minutes_ago=20, message="0/4 nodes are available"),
        worker(2, minutes_ago=10),
        worker(3, node="node-a"),
        worker(1, group="cpu", limits={"cpu": 4}),
        worker(1, group="headgroup", node_type="head"),
        worker(1, of="other"),
    ).of_cluster(ray)
    assert found.keys() == {"gpu"}
    waiting = found["gpu"]
    assert (waiting.workers, waiting.since, waiting.pod) == (2, NOON - timedelta(minutes=20), "eval-gpu-worker-1")
    assert group_why(waiting, NAMESPACE) == (
        "2 workers of group gpu wait for cards: 0/4 nodes are available. "
        "See `kubectl gpu explain pod eval-gpu-worker-1 -n research`"
    )


def test_a_pod_belongs_to_its_controller_and_not_to_its_label() -> None:
    """Whoever may create pods may give them any label."""
    impostor = worker(1, of="other")
    impostor.metadata.labels["ray.io/cluster"] = "eval"
    assert lookup(cluster(), impostor).of_cluster(cluster()) == {}


@pytest.mark.parametrize(
    ("status", "waits"),
    [
        ({}, True),
        ({"jobDeploymentStatus": "Initializing"}, True),
        ({"jobDeploymentStatus": "Retrying", "startTime": HOURS_AGO, "failed": 1}, False),
        ({"jobDeploymentStatus": "", "startTime": HOURS_AGO, "failed": 1}, False),
        ({"jobDeploymentStatus": "Running", "jobStatus": "PENDING"}, True),
        ({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, False),
        ({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "reason": "JobLost"}, True),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "RUNNING", "reason": "JobLost"}, False),
        ({"jobDeploymentStatus": "Waiting"}, False),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, False),
        ({"jobDeploymentStatus": "Failed"}, False),
        ({"jobDeploymentStatus": "Suspended"}, False),
        ({"jobDeploymentStatus": "ValidationFailed"}, False),
    ],
    ids=str,
)
def test_a_job_waits_while_it_is_meant_to_run_and_does_not(status: dict[str, Any], waits: bool) -> None:
    assert (lookup().of_job(job(**status)) is not None) is waits
    assert lookup().of_job(job(spec={"suspend": True}, **status)) is None
    assert lookup().of_job(job(spec={"managedBy": "kueue.x-k8s.io/multikueue"}, **status)) is None


@pytest.mark.parametrize(
    ("mode", "status", "why"),
    [
        ("K8sJobMode", {"jobStatus": "PENDING"}, "Ray has not begun it: it may ask for more than its cluster has"),
        ("K8sJobMode", {}, "Ray does not have it yet; see the Job train that submits it, and its pod"),
        (
            "HTTPMode",
            {"message": "cannot connect"},
            "Ray does not have it yet: cannot connect; the operator submits it through Ray's dashboard",
        ),
        ("SidecarMode", {}, "Ray does not have it yet; see the container beside its head that submits it"),
        ("InteractiveMode", {"jobId": "mine"}, "Ray does not have it yet; submit it under the ID mine"),
        ("InteractiveMode", {"jobStatus": "RUNNING", "reason": "JobLost", "message": "lost"}, "lost"),
    ],
)
def test_a_job_that_was_submitted_says_what_it_waits_for(mode: str, status: dict[str, Any], why: str) -> None:
    found = lookup().of_job(job(spec={"submissionMode": mode}, jobDeploymentStatus="Running", **status))
    assert found is not None
    assert found.why == why


def test_a_job_that_ray_has_lost_waits_since_then() -> None:
    lost: dict[str, Any] = {"jobStatus": "RUNNING", "reason": "JobLost", "jobStatusCheckFailureStartTime": NOON}
    found = lookup().of_job(job(jobDeploymentStatus="Running", startTime=HOURS_AGO, **lost))
    assert found is not None
    assert found.since == NOON


def test_a_try_waits_since_it_began() -> None:
    began = NOON - timedelta(minutes=3)
    found = lookup().of_job(job(jobDeploymentStatus="Initializing", startTime=began))
    assert found is not None
    assert found.since == began
    fresh = lookup().of_job(job())
    assert fresh is not None
    assert fresh.since == HALF_PAST


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ((), "there is no RayCluster yet"),
        ((cluster(), worker()), "1 worker of group gpu waits for cards"),
        (
            (cluster(conditions=[condition("HeadPodReady", "False", "ImagePullBackOff")]),),
            "the head is not ready (ImagePullBackOff)",
        ),
        (
            (cluster(conditions=[condition("Valid", "False", "InvalidRayClusterSpec", "no container")]),),
            "InvalidRayClusterSpec: no container",
        ),
        (
            (cluster(conditions=[condition("ReplicaFailure", "True", "FailedCreateWorkerPod", "quota")]), worker()),
            "FailedCreateWorkerPod: quota; 1 worker of group gpu waits for cards",
        ),
    ],
    ids=str,
)
def test_a_job_says_what_its_cluster_waits_for(objects: tuple[Object, ...], why: str) -> None:
    found = lookup(*objects).of_job(job(jobDeploymentStatus="Initializing", rayClusterName="eval"))
    assert found is not None
    assert found.why == f"its cluster is not up: {why}"


def test_a_service_waits_until_it_is_ready() -> None:
    unready = condition("Ready", "False", "ZeroServeEndpoints", "no pod answers", minutes_ago=7)
    found = lookup(cluster(), worker()).of_service(
        service(conditions=[unready], pendingServiceStatus={"rayClusterName": "eval"})
    )
    assert found is not None
    assert found.since == NOON - timedelta(minutes=7)
    assert found.why == "ZeroServeEndpoints: no pod answers; 1 worker of group gpu waits for cards"
    assert lookup().of_service(service(conditions=[condition("Ready", "True")])) is None
    assert lookup().of_service(service(conditions=[unready], spec={"suspend": True})) is None
    assert lookup().of_service(service(conditions=[unready, condition("Suspended", "True")])) is None
    invalid = condition("Ready", "False", "ValidationFailed", "spec.x: it is wrong.")
    assert lookup().of_service(service(conditions=[invalid], numServeEndpoints=2)) is None, "it goes on as it was"
    assert lookup().of_service(service(conditions=[invalid])) is not None
    assert lookup().of_service(service(conditions=[unready], numServeEndpoints=2)) is not None
    fresh = lookup().of_service(service())
    assert fresh is not None
    assert fresh.since == HALF_PAST
