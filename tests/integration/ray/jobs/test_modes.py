"""Each way of submitting a job, from the RayJob to its end."""

import json

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.ray.options import BatchScheduler
from gpu_control_plane.ray.owned import OwnedService
from gpu_control_plane.ray.scheduling import scheduler_for, scheduling_fields_of
from integration.ray.jobs.play import CLUSTER, Play, names


@pytest.mark.parametrize("mode", ["K8sJobMode", "HTTPMode"])
@pytest.mark.parametrize("fate", ["SUCCEEDED", "FAILED", "STOPPED"])
async def test_a_job_runs_once_to_its_end(play: Play, mode: str, fate: str) -> None:
    play.fates = [fate]
    await play.submit(submissionMode=mode)
    async with play.operator(), play.life():
        status = await play.reaches("Failed" if fate == "FAILED" else "Complete")
    assert [one.submission_id for one in play.fake.submissions] == [status.job_id]
    assert (status.job_status, status.message) == (fate, "the end")
    assert (status.succeeded, status.failed) == (int(fate == "SUCCEEDED"), int(fate == "FAILED"))
    assert status.reason == ("AppFailed" if fate == "FAILED" else "")
    assert status.end_time is not None
    assert status.ray_cluster_status is not None
    assert status.ray_cluster_status.state == "ready"
    assert names(await play.clusters()) == [status.ray_cluster_name]
    assert names(await play.submitters()) == (["demo"] if mode == "K8sJobMode" else [])
    service = await play.client.get(OwnedService, "demo-head-svc", play.namespace)
    assert service.spec["selector"]["ray.io/cluster"] == status.ray_cluster_name


async def test_all_pods_of_a_job_tell_yunikorn_of_the_same_groups(play: Play) -> None:
    """It takes the groups from the first pod of an application; the submitter comes last."""
    options = replace(play.settings.options, batch_scheduler=BatchScheduler.YUNIKORN)
    play.settings = replace(play.settings, options=options)
    metadata = {"name": "demo", "labels": {Label.GANG.value: "true"}}
    wire = {"metadata": metadata, "spec": {"entrypoint": "python job.py", "rayClusterSpec": CLUSTER}}
    await play.client.create(RayJob, wire, play.namespace)
    async with play.operator(), play.life():
        await play.reaches("Complete")
    (cluster,), (submitter,) = await play.clusters(), await play.submitters()
    told = submitter.spec["template"]["metadata"]["annotations"]
    worker = scheduling_fields_of(scheduler_for(BatchScheduler.YUNIKORN), cluster, cluster)["gpu"].annotations
    key = "yunikorn.apache.org/task-groups"
    assert worker[key] == told[key]
    assert [each["name"] for each in json.loads(told[key])] == ["headgroup", "gpu", "submittergroup"]
