"""Each way of submitting a job, from the RayJob to its end."""

import json

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.ray.options import BatchScheduler
from gpu_control_plane.ray.owned import OwnedService
from gpu_control_plane.ray.scheduling import scheduler_for, scheduling_fields_of
from integration.ray.jobs.job_env import CLUSTER, RayJobEnv, names


@pytest.mark.parametrize("mode", ["K8sJobMode", "HTTPMode"])
@pytest.mark.parametrize("job_end", ["SUCCEEDED", "FAILED", "STOPPED"])
async def test_a_job_runs_once_to_its_end(env: RayJobEnv, mode: str, job_end: str) -> None:
    env.job_ends = [job_end]
    await env.submit(submissionMode=mode)
    async with env.operator(), env.simulation():
        status = await env.reaches("Failed" if job_end == "FAILED" else "Complete")
    assert [one.submission_id for one in env.fake.submissions] == [status.job_id]
    assert (status.job_status, status.message) == (job_end, "the end")
    assert (status.succeeded, status.failed) == (int(job_end == "SUCCEEDED"), int(job_end == "FAILED"))
    assert status.reason == ("AppFailed" if job_end == "FAILED" else "")
    assert status.end_time is not None
    assert status.ray_cluster_status is not None
    assert status.ray_cluster_status.state == "ready"
    assert names(await env.clusters()) == [status.ray_cluster_name]
    assert names(await env.submitters()) == (["demo"] if mode == "K8sJobMode" else [])
    service = await env.client.get(OwnedService, "demo-head-svc", env.namespace)
    assert service.spec["selector"]["ray.io/cluster"] == status.ray_cluster_name


async def test_all_pods_of_a_job_tell_yunikorn_of_the_same_groups(env: RayJobEnv) -> None:
    """It takes the groups from the first pod of an application; the submitter comes last."""
    options = replace(env.settings.options, batch_scheduler=BatchScheduler.YUNIKORN)
    env.settings = replace(env.settings, options=options)
    metadata = {"name": "demo", "labels": {Label.GANG.value: "true"}}
    wire = {"metadata": metadata, "spec": {"entrypoint": "python job.py", "rayClusterSpec": CLUSTER}}
    await env.client.create(RayJob, wire, env.namespace)
    async with env.operator(), env.simulation():
        await env.reaches("Complete")
    (cluster,), (submitter,) = await env.clusters(), await env.submitters()
    told = submitter.spec["template"]["metadata"]["annotations"]
    worker = scheduling_fields_of(scheduler_for(BatchScheduler.YUNIKORN), cluster, cluster)["gpu"].annotations
    key = "yunikorn.apache.org/task-groups"
    assert worker[key] == told[key]
    assert [each["name"] for each in json.loads(told[key])] == ["headgroup", "gpu", "submittergroup"]
