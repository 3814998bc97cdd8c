"""A RayCluster whose workers have cards of a pool, and jobs that run on it: real Ray, in pods, by name."""

import pytest

from blocking_wait import until
from e2e.ray.manifests import GPUS, cluster_spec, ray_cluster, ray_job
from e2e.ray.ray_env import RayEnv, Stopwatch

pytestmark = pytest.mark.timeout(600)  # the image may have to be made first
CARDS = 2


def test_a_cluster_with_two_workers_comes_up_and_ray_counts_the_pools_units(env: RayEnv) -> None:
    watch = Stopwatch()
    env.create(ray_cluster("rc", cluster_spec(workers=2, cards=1)))
    env.wait_ready("rc", 3)
    watch.say("a head and two workers are ready")
    until(lambda: env.status("rayclusters", "rc").get("state") == "ready")
    watch.say("the RayCluster says so")
    status = env.status("rayclusters", "rc")
    assert (status["desiredWorkerReplicas"], status["availableWorkerReplicas"]) == (2, 2)
    nodes = env.dashboard("rc", "/api/v0/nodes?detail=true")["data"]["result"]["result"]
    gpus = [node["resources_total"].get("GPU", 0) for node in nodes if not node["is_head_node"]]
    assert gpus == [1, 1]
    cards = [env.agent.cards_in(pod["metadata"]["name"]) for pod in env.pods("rc", "worker")]
    assert sorted(cards) == [["nvidia0"], ["nvidia1"]]


def test_a_job_by_http_runs_on_the_cluster_and_succeeds(env: RayEnv) -> None:
    watch = Stopwatch()
    code = f'python -c "{GPUS}"'
    env.create(ray_job("by-http", code, submissionMode="HTTPMode", clusterSelector={"ray.io/cluster": "rc"}))
    until(lambda: env.status("rayjobs", "by-http").get("jobDeploymentStatus") == "Complete", within=120)
    watch.say("a job by HTTP is complete")
    status = env.status("rayjobs", "by-http")
    assert status["jobStatus"] == "SUCCEEDED"
    logs = env.dashboard("rc", f"/api/jobs/{status['jobId']}/logs")["logs"]
    assert f"GPUs {CARDS:.1f}" in logs


def test_a_job_with_a_cluster_of_its_own_runs_once_and_succeeds(env: RayEnv) -> None:
    """By a submitter pod, as is usual."""
    env.delete("raycluster", "rc")
    watch = Stopwatch()
    code = f'python -c "{GPUS}"'
    env.create(ray_job("sample", code, rayClusterSpec=cluster_spec(workers=1, cards=2)))
    until(lambda: env.status("rayjobs", "sample").get("jobDeploymentStatus") == "Running", within=120)
    watch.say("its cluster is ready, and it is running")
    until(lambda: env.status("rayjobs", "sample").get("jobDeploymentStatus") == "Complete", within=120)
    watch.say("a job by a submitter is complete")
    status = env.status("rayjobs", "sample")
    assert status["jobStatus"] == "SUCCEEDED"
    assert f"GPUs {CARDS:.1f}" in env.kubectl("logs", "job/sample")
    jobs = env.dashboard(status["rayClusterName"], "/api/jobs/")
    assert [job["submission_id"] for job in jobs] == [status["jobId"]]
