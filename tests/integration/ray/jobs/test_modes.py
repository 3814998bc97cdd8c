"""Each way of submitting a job, from the RayJob to its end."""

import pytest

from gpu_control_plane.ray.owned import OwnedService
from integration.ray.jobs.play import Play, names


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
