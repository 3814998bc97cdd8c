"""What happens to RayJobs beside running: people who submit, suspension, retries, deadlines, what goes at the end, and
an operator or a dashboard that was away."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.cronjob import RayCronJob
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.kube import Object, Resource, Selection
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.ray.owned import OwnedService, RayPod
from integration.bootstrap.operands import allow_pods
from integration.ray.jobs.play import CLUSTER, Job, Play, names
from ray_dashboard import FakeDashboard, Fault
from waiting import until, until_async

HTTP = {"submissionMode": "HTTPMode"}


class Event(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("events.k8s.io", "v1", "Event", "events")
    reason: str = ""


async def reasons(play: Play) -> set[str]:
    return {event.reason for event in await play.client.list(Event, Selection(namespace=play.namespace))}


async def gone(play: Play, kind: type[Object], name: str) -> bool:
    try:
        await play.client.get(kind, name, play.namespace)
    except NotFound:
        return True
    return False


async def test_a_person_submits_and_gives_the_id(play: Play) -> None:
    await play.submit(submissionMode="InteractiveMode")
    async with play.operator(), play.life():
        assert (await play.reaches("Waiting")).job_id == ""
        play.fake.submit("by-hand")
        await play.edit(jobId="by-hand")
        assert (await play.reaches("Complete")).job_id == "by-hand"


async def test_a_container_beside_the_head_submits(play: Play) -> None:
    await allow_pods(play.client, play.namespace)
    await play.submit(submissionMode="SidecarMode")
    play.ends = play.clusters_come_up = False
    async with play.operator(), play.life():
        await until_async(lambda: has_clusters(play, 1), saying="there is a cluster")
        held = (await play.clusters())[0]
        containers = held.spec.head_group_spec.template["spec"]["containers"]
        assert [container["name"] for container in containers] == ["ray-head", "ray-job-submitter"]
        job_id = next(one["value"] for one in containers[1]["env"] if one["name"] == "RAY_JOB_SUBMISSION_ID")
        await head(play, held)
        play.clusters_come_up = True
        play.fake.submit(job_id)
        status = await play.reaches("Running")
        assert status.job_id == job_id
        await until_async(lambda: has_status(play, "RUNNING"), saying="it runs")
        await play.client.delete(RayPod, "head", play.namespace)
        status = await play.reaches("Failed")
    assert (status.reason, play.fake.submissions[0].submission_id) == ("AppFailed", job_id)


async def head(play: Play, held: RayCluster) -> None:
    """The head of a cluster, as the controller of RayClusters makes it."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": held.name, "uid": held.metadata.uid}
    pod = {
        "metadata": {
            "name": "head",
            "labels": {"ray.io/cluster": held.name, "ray.io/node-type": "head", "ray.io/group": "headgroup"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"containers": [{"name": "ray-head", "image": "x"}], "terminationGracePeriodSeconds": 0},
    }
    await play.client.create(RayPod, pod, play.namespace)


async def test_a_job_runs_on_a_cluster_that_is_there_and_leaves_it_alone(play: Play) -> None:
    shared = {"metadata": {"name": "shared"}, "spec": CLUSTER}
    await play.client.create(RayCluster, shared, play.namespace)
    play.ends = False
    spec: dict[str, Any] = {
        "clusterSelector": {"ray.io/cluster": "shared"},
        "rayClusterSpec": None,
        "shutdownAfterJobFinishes": True,
    }
    await play.submit(**spec, **HTTP)
    await play.submit("second", **spec, **HTTP)
    async with play.operator(), play.life():
        await until(lambda: len(play.fake.submissions) == 2)
        await until_async(lambda: has_status(play, "RUNNING"), saying="it runs")
        await until_async(lambda: has_status(play, "RUNNING", "second"), saying="the second runs")
        # Deleted while it runs: its job is told to stop, and the cluster stays.
        second = (await play.status("second")).job_id
        await play.client.delete(RayJob, "second", play.namespace)
        await until_async(lambda: gone(play, RayJob, "second"), saying="it is gone")
        assert play.fake.stopped == [second]
        play.ends = True
        await play.reaches("Complete")
        assert names(await play.clusters()) == ["shared"]
        assert await gone(play, OwnedService, "demo-head-svc")


async def test_a_suspended_job_has_no_cluster_and_starts_anew_when_resumed(play: Play) -> None:
    """As Kueue does it: created suspended, admitted, taken back, admitted again."""
    await play.submit(suspend=True, shutdownAfterJobFinishes=True)
    play.ends = False
    async with play.operator(), play.life():
        await play.reaches("Suspended")
        assert await play.clusters() == []
        await play.edit(suspend=False)
        await play.reaches("Running")
        first = (await play.status()).ray_cluster_name
        await until_async(lambda: has_status(play, "RUNNING"), saying="it runs")
        await play.edit(suspend=True)
        status = await play.reaches("Suspended")
        assert (await play.clusters(), await play.submitters()) == ([], [])
        assert (status.job_id, status.ray_cluster_name) == ("", "")
        await play.edit(suspend=False)
        play.ends = True
        status = await play.reaches("Complete")
        assert status.ray_cluster_name != first
    assert len(play.fake.submissions) == 2
    assert (await play.status()).failed == 0


async def test_each_try_has_a_cluster_of_its_own_and_the_service_follows(play: Play) -> None:
    play.fates = ["FAILED", "FAILED", "SUCCEEDED"]
    await play.submit(backoffLimit=2, **HTTP)
    async with play.operator(), play.life():
        status = await play.reaches("Complete")
        assert (status.failed, status.succeeded) == (2, 1)
        assert len({one.submission_id for one in play.fake.submissions}) == 3
        assert names(await play.clusters()) == [status.ray_cluster_name]
        service = await play.client.get(OwnedService, "demo-head-svc", play.namespace)
        assert service.spec["selector"]["ray.io/cluster"] == status.ray_cluster_name
        await until_async(lambda: told(play, "RayJobRetried"), saying="the Event is there")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"activeDeadlineSeconds": 3600}, "DeadlineExceeded"), ({"preRunningDeadlineSeconds": 3600}, "PreRunning")],
)
async def test_a_deadline_ends_the_wait_for_a_cluster(play: Play, spec: dict[str, Any], reason: str) -> None:
    play.clusters_come_up = False
    await play.submit(**spec, backoffLimit=0)
    async with play.operator():
        await play.reaches("Initializing")
    play.away = timedelta(hours=2)
    async with play.operator():
        status = await play.reaches("Failed")
    assert status.reason.startswith(reason)


async def test_a_job_that_takes_too_long_is_told_to_stop(play: Play) -> None:
    play.ends = False
    await play.submit(activeDeadlineSeconds=3600, **HTTP)
    async with play.life():
        async with play.operator():
            await until_async(lambda: has_status(play, "RUNNING"), saying="it runs")
        play.away = timedelta(hours=2)
        async with play.operator():
            status = await play.reaches("Failed")
            await until(lambda: play.fake.stopped)
    assert status.reason == "DeadlineExceeded"
    assert play.fake.stopped == [status.job_id]


@pytest.mark.parametrize("mode", ["K8sJobMode", "HTTPMode"])
async def test_a_success_while_the_operator_was_away_is_a_success(play: Play, mode: str) -> None:
    """It ended in time, its submitter with it; the operator comes back when every clock has run out."""
    play.ends = False
    await play.submit(submissionMode=mode, activeDeadlineSeconds=3600)
    async with play.life():
        async with play.operator():
            await until_async(lambda: has_status(play, "RUNNING"), saying="it runs")
        play.ends = True
        job_id = play.fake.submissions[0].submission_id
        await until(lambda: play.fake.jobs[job_id]["status"] == "SUCCEEDED")
        if mode == "K8sJobMode":
            await until_async(lambda: submitter_ended(play), saying="the submitter has ended")
        play.away = timedelta(days=1)
        # Its first questions are not answered.
        async with play.fake.failing(Fault.ERROR), play.operator():
            await until(lambda: len([one for one in play.fake.requests if job_id in one]) > 0)
            assert (await play.status()).job_deployment_status == "Running"
        async with play.operator():
            status = await play.reaches("Complete")
    assert (status.job_status, status.failed, len(play.fake.submissions)) == ("SUCCEEDED", 0, 1)


async def test_a_dashboard_that_is_away_for_too_long_fails_the_job_and_a_short_while_does_not(play: Play) -> None:
    play.ends = False
    play.settings = replace(play.settings, submitter_grace=timedelta(seconds=0.2))
    await play.submit(**HTTP)
    async with play.operator(), play.life():
        await until_async(lambda: has_status(play, "RUNNING"), saying="it runs")
        async with play.fake.failing(Fault.REFUSE):
            await until_async(lambda: since(play), saying="it says since when Ray does not answer")
            assert (await play.status()).job_deployment_status == "Running"
        await until_async(lambda: since(play, False), saying="Ray answers again")
        async with play.fake.failing(Fault.REFUSE):
            await until_async(lambda: since(play), saying="it says so again")
            play.away += timedelta(minutes=6)
            await play.edit(entrypoint="python other.py")
            status = await play.reaches("Failed")
    assert status.reason == "JobStatusCheckTimeoutExceeded"


async def since(play: Play, there: bool = True) -> bool:
    return ((await play.status()).job_status_check_failure_start_time is not None) is there


async def test_rules_take_the_workers_first_and_the_rayjob_last(play: Play) -> None:
    rules = [
        {"policy": policy, "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": ttl}}
        for policy, ttl in (("DeleteWorkers", 60), ("DeleteCluster", 120), ("DeleteSelf", 180))
    ]
    await play.submit(deletionStrategy={"deletionRules": rules}, **HTTP)
    async with play.life():
        async with play.operator():
            await play.reaches("Complete")
        assert not (await play.clusters())[0].spec.worker_group_specs[0].suspend
        play.away = timedelta(seconds=90)
        async with play.operator():
            await until_async(lambda: workers_suspended(play), saying="the workers go")
        play.away = timedelta(seconds=150)
        async with play.operator():
            await until_async(lambda: has_clusters(play, 0), saying="the cluster goes")
        play.away = timedelta(seconds=210)
        async with play.operator():
            await until_async(lambda: gone(play, RayJob, "demo"), saying="the RayJob goes")


async def workers_suspended(play: Play) -> bool:
    group = (await play.clusters())[0].spec.worker_group_specs[0]
    return group.suspend is True and group.max_replicas == 2


async def test_the_cluster_goes_when_its_time_is_over_and_the_submitter_stays(play: Play) -> None:
    await play.submit(shutdownAfterJobFinishes=True, ttlSecondsAfterFinished=2)
    async with play.operator(), play.life():
        await play.reaches("Complete")
        await until_async(lambda: has_clusters(play, 0), saying="the cluster goes")
        assert names(await play.submitters()) == ["demo"]


async def test_a_spec_that_cannot_be_carried_out_can_be_corrected(play: Play) -> None:
    await play.submit(runtimeEnvYAML="pip: [", **HTTP)
    async with play.operator(), play.life():
        status = await play.reaches("ValidationFailed")
        assert "runtimeEnvYAML" in status.message
        assert await play.clusters() == []
        await play.edit(runtimeEnvYAML="pip: [torch]")
        await play.reaches("Complete")
    assert play.fake.submissions[0].body["runtime_env"] == {"pip": ["torch"]}


async def test_a_running_job_is_not_failed_by_a_spec_edit(play: Play) -> None:
    play.ends = False
    await play.submit(**HTTP)
    async with play.operator(), play.life():
        await until_async(lambda: has_status(play, "RUNNING"), saying="it runs")
        await play.edit(runtimeEnvYAML="pip: [", backoffLimit=-1)
        await until_async(lambda: has_status(play, "RUNNING"), saying="it runs")
        play.ends = True
        await play.reaches("Complete")


async def test_a_submitter_that_is_deleted_is_not_made_again(play: Play) -> None:
    await play.submit()
    async with play.operator():
        await until_async(lambda: has_clusters(play, 1), saying="there is a cluster")
        await play.set_cluster((await play.clusters())[0].name, state="ready")
        await play.reaches("Running")
        await play.client.delete(type((await play.submitters())[0]), "demo", play.namespace)
        status = await play.reaches("Failed")
    assert (status.reason, await play.submitters()) == ("SubmissionFailed", [])


async def test_what_belongs_to_another_is_left_alone(play: Play) -> None:
    """A Job of the RayJob's name, which somebody else has made."""
    container = {"name": "x", "image": "x"}
    own = {
        "metadata": {"name": "demo", "labels": {"app.kubernetes.io/created-by": "kuberay-operator"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    await play.client.create(Job, own, play.namespace)
    await play.submit()
    async with play.operator():
        await until_async(lambda: has_clusters(play, 1), saying="there is a cluster")
        await play.set_cluster((await play.clusters())[0].name, state="ready")
        await until_async(lambda: told(play, "FailedToCreateRayJobSubmitter"), saying="it is told")
        assert (await play.status()).job_deployment_status == "Initializing"
    assert (await play.submitters())[0].spec["template"]["spec"]["containers"][0]["image"] == "x"


async def test_a_service_of_another_keeps_no_job_from_its_end(play: Play) -> None:
    """The head's Service of a RayCluster that has the name of the RayJob."""
    ports = [{"name": "dashboard", "port": 8265}]
    await play.client.create(
        OwnedService, {"metadata": {"name": "demo-head-svc"}, "spec": {"ports": ports}}, play.namespace
    )
    await play.submit()
    async with play.operator(), play.life():
        await play.reaches("Complete")
        await until_async(lambda: told(play, "FailedToCreateService"), saying="it is told")
    there = await play.client.get(OwnedService, "demo-head-svc", play.namespace)
    assert not there.metadata.owner_references


@pytest.mark.parametrize("spec", [{"managedBy": "kueue.x-k8s.io/multikueue"}])
async def test_a_job_of_multikueue_is_left_alone(play: Play, spec: dict[str, Any]) -> None:
    await play.submit(**spec)
    await play.submit("ours", **HTTP)
    async with play.operator(), play.life():
        await play.reaches("Complete", "ours")
        assert (await play.status()).job_deployment_status == ""


async def test_a_dashboard_that_asks_for_a_token_gets_that_of_its_cluster(
    plays: Callable[[], Awaitable[Play]],
) -> None:
    play = await plays()
    async with FakeDashboard(token="rays") as secured:
        play.fake = secured
        secret = {"metadata": {"name": "mine"}, "stringData": {"auth_token": "rays"}}
        await play.client.create(_Secret, secret, play.namespace)
        spec = {**CLUSTER, "authOptions": {"mode": "token", "secretName": "mine"}}
        await play.submit(rayClusterSpec=spec, **HTTP)
        async with play.operator(), play.life():
            await play.reaches("Complete")


class _Secret(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Secret", "secrets")


async def test_a_raycronjob_makes_rayjobs_and_keeps_as_many_as_it_is_to(play: Play) -> None:
    await play.cron(schedule="0 * * * *", successfulJobsHistoryLimit=1)
    async with play.life():
        for hours in (1, 2, 3):
            play.away = timedelta(hours=hours)
            async with play.operator():
                await until_async(lambda: have_run(play, hours), saying=f"{hours} have run")  # noqa: B023
    cron = await play.client.get(RayCronJob, "nightly", play.namespace)
    assert cron.status.active == ()
    assert cron.status.next_schedule_time is not None
    assert cron.status.last_schedule_time == cron.status.next_schedule_time - timedelta(hours=1)


async def have_run(play: Play, count: int) -> bool:
    """Whether so many have run, and all but the last are gone."""
    held = await play.client.list(RayJob, Selection(namespace=play.namespace))
    states = [job.status.job_deployment_status for job in held]
    active = (await play.client.get(RayCronJob, "nightly", play.namespace)).status.active
    return len(play.fake.submissions) == count and states == ["Complete"] and not active


async def has_clusters(play: Play, count: int) -> bool:
    return len(await play.clusters()) == count


async def has_status(play: Play, status: str, name: str = "demo") -> bool:
    return (await play.status(name)).job_status == status


async def submitter_ended(play: Play) -> bool:
    return all(job.ended for job in await play.submitters())


async def told(play: Play, reason: str) -> bool:
    return reason in await reasons(play)
