"""Ray's own autoscaler beside the head, with the rights that the operator gave it: it adds workers and removes them."""

import pytest

from blocking_wait import until
from e2e.ray.manifests import GPUS, cluster_spec, ray_cluster, ray_job
from e2e.ray.ray_env import RayEnv, Stopwatch

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("long_run")]
IDLE_SECONDS = 10


def test_a_waiting_task_gets_a_worker_which_leaves_when_it_is_idle(env: RayEnv) -> None:
    """The autoscaler does not know pools, so `num-gpus` says what a worker brings."""
    options = {
        "version": "v2",
        "idleTimeoutSeconds": IDLE_SECONDS,
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
    }
    spec = cluster_spec(workers=0, most=1, cards=1, params={"num-gpus": "1"}, enableInTreeAutoscaling=True)
    watch = Stopwatch()
    env.create(ray_cluster("elastic", {**spec, "autoscalerOptions": options}))
    env.wait_ready("elastic", 1)
    watch.say("a head with its autoscaler is ready, without workers")
    selector = {"ray.io/cluster": "elastic"}
    code = f'python -c "{GPUS}"'
    env.create(ray_job("wants-gpu", code, submissionMode="HTTPMode", clusterSelector=selector, entrypointNumGpus=1))
    until(lambda: env.pods("elastic", "worker"), within=120)
    watch.say("the autoscaler has asked for a worker, and the operator has made it")
    until(lambda: env.status("rayjobs", "wants-gpu").get("jobDeploymentStatus") == "Complete", within=120)
    watch.say("the job that waited for a GPU is complete")
    assert env.status("rayjobs", "wants-gpu")["jobStatus"] == "SUCCEEDED"
    until(lambda: not env.pods("elastic", "worker"), within=120)
    watch.say(f"the worker is gone; it may be idle for {IDLE_SECONDS} s")
    [group] = env.get("rayclusters", "elastic")["spec"]["workerGroupSpecs"]
    assert group["replicas"] == 0
