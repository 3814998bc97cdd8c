"""The operator is killed at the steps of a job: the job runs once, and its end is known."""

import pytest

from blocking_wait import until
from e2e.ray.manifests import cluster_spec, ray_job
from e2e.ray.ray_env import RayEnv, Stopwatch

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("long_run")]
RUN = "sh -c 'echo run >> /tmp/runs; sleep 20'"
HOW_OFTEN = "print(open('/tmp/runs').read().count('run'))"


@pytest.mark.parametrize("mode", ["K8sJobMode", "HTTPMode"])
def test_a_job_runs_once_whenever_the_operator_dies(env: RayEnv, mode: str) -> None:
    name = f"killed-{mode.lower().removesuffix('mode')}"

    def stands_at(*stages: str) -> bool:
        return env.status("rayjobs", name).get("jobDeploymentStatus", "") in stages

    watch = Stopwatch()
    env.create(ray_job(name, RUN, submissionMode=mode, rayClusterSpec=cluster_spec(workers=0)))
    until(lambda: len(env.clusters()) == 1)
    env.kill_controller()
    watch.say(f"{mode}: its cluster is there; the operator was killed")
    until(lambda: stands_at("Running", "Complete", "Failed"), within=150)
    env.kill_controller()
    watch.say(f"{mode}: it is to run; the operator was killed")
    until(lambda: env.status("rayjobs", name).get("jobStatus") in ("RUNNING", "SUCCEEDED", "FAILED"), within=150)
    env.kill_controller()
    watch.say(f"{mode}: it runs; the operator was killed")
    until(lambda: stands_at("Complete", "Failed"), within=200)
    watch.say(f"{mode}: it is complete")
    status = env.status("rayjobs", name)
    assert status["jobStatus"] == "SUCCEEDED", status
    cluster = status["rayClusterName"]
    assert env.in_head(cluster, HOW_OFTEN) == "1\n"
    assert [job["submission_id"] for job in env.dashboard(cluster, "/api/jobs/")] == [status["jobId"]]
    assert [each["metadata"]["name"] for each in env.clusters()] == [cluster]
    env.delete("rayjob", name)
