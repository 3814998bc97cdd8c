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
from integration.ray.jobs.job_env import CLUSTER, Job, RayJobEnv, names
from ray_dashboard import FakeDashboard, Fault
from waiting import until, until_async

HTTP = {"submissionMode": "HTTPMode"}


class Event(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("events.k8s.io", "v1", "Event", "events")
    reason: str = ""


async def reasons(env: RayJobEnv) -> set[str]:
    return {event.reason for event in await env.client.list(Event, Selection(namespace=env.namespace))}


async def gone(env: RayJobEnv, kind: type[Object], name: str) -> bool:
    try:
        await env.client.get(kind, name, env.namespace)
    except NotFound:
        return True
    return False


async def test_a_person_submits_and_gives_the_id(env: RayJobEnv) -> None:
    await env.submit(submissionMode="InteractiveMode")
    async with env.operator(), env.simulation():
        assert (await env.reaches("Waiting")).job_id == ""
        env.fake.submit("by-hand")
        await env.edit(jobId="by-hand")
        assert (await env.reaches("Complete")).job_id == "by-hand"


async def test_a_container_beside_the_head_submits(env: RayJobEnv) -> None:
    await allow_pods(env.client, env.namespace)
    await env.submit(submissionMode="SidecarMode")
    env.ends = env.clusters_come_up = False
    async with env.operator(), env.simulation():
        await until_async(lambda: has_clusters(env, 1), saying="there is a cluster")
        held = (await env.clusters())[0]
        containers = held.spec.head_group_spec.template["spec"]["containers"]
        assert [container["name"] for container in containers] == ["ray-head", "ray-job-submitter"]
        job_id = next(one["value"] for one in containers[1]["env"] if one["name"] == "RAY_JOB_SUBMISSION_ID")
        await head(env, held)
        env.clusters_come_up = True
        env.fake.submit(job_id)
        status = await env.reaches("Running")
        assert status.job_id == job_id
        await until_async(lambda: has_status(env, "RUNNING"), saying="it runs")
        await env.client.delete(RayPod, "head", env.namespace)
        status = await env.reaches("Failed")
    assert (status.reason, env.fake.submissions[0].submission_id) == ("AppFailed", job_id)


async def head(env: RayJobEnv, held: RayCluster) -> None:
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
    await env.client.create(RayPod, pod, env.namespace)


async def test_a_job_runs_on_a_cluster_that_is_there_and_leaves_it_alone(env: RayJobEnv) -> None:
    shared = {"metadata": {"name": "shared"}, "spec": CLUSTER}
    await env.client.create(RayCluster, shared, env.namespace)
    env.ends = False
    spec: dict[str, Any] = {
        "clusterSelector": {"ray.io/cluster": "shared"},
        "rayClusterSpec": None,
        "shutdownAfterJobFinishes": True,
    }
    await env.submit(**spec, **HTTP)
    await env.submit("second", **spec, **HTTP)
    async with env.operator(), env.simulation():
        await until(lambda: len(env.fake.submissions) == 2)
        await until_async(lambda: has_status(env, "RUNNING"), saying="it runs")
        await until_async(lambda: has_status(env, "RUNNING", "second"), saying="the second runs")
        # Deleted while it runs: its job is told to stop, and the cluster stays.
        second = (await env.status("second")).job_id
        await env.client.delete(RayJob, "second", env.namespace)
        await until_async(lambda: gone(env, RayJob, "second"), saying="it is gone")
        assert env.fake.stopped == [second]
        env.ends = True
        await env.reaches("Complete")
        assert names(await env.clusters()) == ["shared"]
        assert await gone(env, OwnedService, "demo-head-svc")


async def test_a_suspended_job_has_no_cluster_and_starts_anew_when_resumed(env: RayJobEnv) -> None:
    """As Kueue does it: created suspended, admitted, taken back, admitted again."""
    await env.submit(suspend=True, shutdownAfterJobFinishes=True)
    env.ends = False
    async with env.operator(), env.simulation():
        await env.reaches("Suspended")
        assert await env.clusters() == []
        await env.edit(suspend=False)
        await env.reaches("Running")
        first = (await env.status()).ray_cluster_name
        await until_async(lambda: has_status(env, "RUNNING"), saying="it runs")
        await env.edit(suspend=True)
        status = await env.reaches("Suspended")
        assert (await env.clusters(), await env.submitters()) == ([], [])
        assert (status.job_id, status.ray_cluster_name) == ("", "")
        await env.edit(suspend=False)
        env.ends = True
        status = await env.reaches("Complete")
        assert status.ray_cluster_name != first
    assert len(env.fake.submissions) == 2
    assert (await env.status()).failed == 0


async def test_each_try_has_a_cluster_of_its_own_and_the_service_follows(env: RayJobEnv) -> None:
    env.job_ends = ["FAILED", "FAILED", "SUCCEEDED"]
    await env.submit(backoffLimit=2, **HTTP)
    async with env.operator(), env.simulation():
        status = await env.reaches("Complete")
        assert (status.failed, status.succeeded) == (2, 1)
        assert len({one.submission_id for one in env.fake.submissions}) == 3
        assert names(await env.clusters()) == [status.ray_cluster_name]
        service = await env.client.get(OwnedService, "demo-head-svc", env.namespace)
        assert service.spec["selector"]["ray.io/cluster"] == status.ray_cluster_name
        await until_async(lambda: told(env, "RayJobRetried"), saying="the Event is there")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"activeDeadlineSeconds": 3600}, "DeadlineExceeded"), ({"preRunningDeadlineSeconds": 3600}, "PreRunning")],
)
async def test_a_deadline_ends_the_wait_for_a_cluster(env: RayJobEnv, spec: dict[str, Any], reason: str) -> None:
    env.clusters_come_up = False
    await env.submit(**spec, backoffLimit=0)
    async with env.operator():
        await env.reaches("Initializing")
    env.away = timedelta(hours=2)
    async with env.operator():
        status = await env.reaches("Failed")
    assert status.reason.startswith(reason)


async def test_a_job_that_takes_too_long_is_told_to_stop(env: RayJobEnv) -> None:
    env.ends = False
    await env.submit(activeDeadlineSeconds=3600, **HTTP)
    async with env.simulation():
        async with env.operator():
            await until_async(lambda: has_status(env, "RUNNING"), saying="it runs")
        env.away = timedelta(hours=2)
        async with env.operator():
            status = await env.reaches("Failed")
            await until(lambda: env.fake.stopped)
    assert status.reason == "DeadlineExceeded"
    assert env.fake.stopped == [status.job_id]


@pytest.mark.parametrize("mode", ["K8sJobMode", "HTTPMode"])
async def test_a_success_while_the_operator_was_away_is_a_success(env: RayJobEnv, mode: str) -> None:
    """It ended in time, its submitter with it; the operator comes back when every clock has run out."""
    env.ends = False
    await env.submit(submissionMode=mode, activeDeadlineSeconds=3600)
    async with env.simulation():
        async with env.operator():
            await until_async(lambda: has_status(env, "RUNNING"), saying="it runs")
        env.ends = True
        job_id = env.fake.submissions[0].submission_id
        await until(lambda: env.fake.jobs[job_id]["status"] == "SUCCEEDED")
        if mode == "K8sJobMode":
            await until_async(lambda: submitter_ended(env), saying="the submitter has ended")
        env.away = timedelta(days=1)
        # Its first questions are not answered.
        async with env.fake.failing(Fault.ERROR), env.operator():
            await until(lambda: len([one for one in env.fake.requests if job_id in one]) > 0)
            assert (await env.status()).job_deployment_status == "Running"
        async with env.operator():
            status = await env.reaches("Complete")
    assert (status.job_status, status.failed, len(env.fake.submissions)) == ("SUCCEEDED", 0, 1)


async def test_a_dashboard_that_is_away_for_too_long_fails_the_job_and_a_short_while_does_not(env: RayJobEnv) -> None:
    env.ends = False
    env.settings = replace(env.settings, submitter_grace=timedelta(seconds=0.2))
    await env.submit(**HTTP)
    async with env.operator(), env.simulation():
        await until_async(lambda: has_status(env, "RUNNING"), saying="it runs")
        async with env.fake.failing(Fault.REFUSE):
            await until_async(lambda: since(env), saying="it says since when Ray does not answer")
            assert (await env.status()).job_deployment_status == "Running"
        await until_async(lambda: since(env, False), saying="Ray answers again")
        async with env.fake.failing(Fault.REFUSE):
            await until_async(lambda: since(env), saying="it says so again")
            env.away += timedelta(minutes=6)
            await env.edit(entrypoint="python other.py")
            status = await env.reaches("Failed")
    assert status.reason == "JobStatusCheckTimeoutExceeded"


async def since(env: RayJobEnv, there: bool = True) -> bool:
    return ((await env.status()).job_status_check_failure_start_time is not None) is there


async def test_rules_take_the_workers_first_and_the_rayjob_last(env: RayJobEnv) -> None:
    rules = [
        {"policy": policy, "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": ttl}}
        for policy, ttl in (("DeleteWorkers", 60), ("DeleteCluster", 120), ("DeleteSelf", 180))
    ]
    await env.submit(deletionStrategy={"deletionRules": rules}, **HTTP)
    async with env.simulation():
        async with env.operator():
            await env.reaches("Complete")
        assert not (await env.clusters())[0].spec.worker_group_specs[0].suspend
        env.away = timedelta(seconds=90)
        async with env.operator():
            await until_async(lambda: workers_suspended(env), saying="the workers go")
        env.away = timedelta(seconds=150)
        async with env.operator():
            await until_async(lambda: has_clusters(env, 0), saying="the cluster goes")
        env.away = timedelta(seconds=210)
        async with env.operator():
            await until_async(lambda: gone(env, RayJob, "demo"), saying="the RayJob goes")


async def workers_suspended(env: RayJobEnv) -> bool:
    group = (await env.clusters())[0].spec.worker_group_specs[0]
    return group.suspend is True and group.max_replicas == 2


async def test_the_cluster_goes_when_its_time_is_over_and_the_submitter_stays(env: RayJobEnv) -> None:
    await env.submit(shutdownAfterJobFinishes=True, ttlSecondsAfterFinished=2)
    async with env.operator(), env.simulation():
        await env.reaches("Complete")
        await until_async(lambda: has_clusters(env, 0), saying="the cluster goes")
        assert names(await env.submitters()) == ["demo"]


async def test_a_spec_that_cannot_be_carried_out_can_be_corrected(env: RayJobEnv) -> None:
    await env.submit(runtimeEnvYAML="pip: [", **HTTP)
    async with env.operator(), env.simulation():
        status = await env.reaches("ValidationFailed")
        assert "runtimeEnvYAML" in status.message
        assert await env.clusters() == []
        await env.edit(runtimeEnvYAML="pip: [torch]")
        await env.reaches("Complete")
    assert env.fake.submissions[0].body["runtime_env"] == {"pip": ["torch"]}


async def test_a_running_job_is_not_failed_by_a_spec_edit(env: RayJobEnv) -> None:
    env.ends = False
    await env.submit(**HTTP)
    async with env.operator(), env.simulation():
        await until_async(lambda: has_status(env, "RUNNING"), saying="it runs")
        await env.edit(runtimeEnvYAML="pip: [", backoffLimit=-1)
        await until_async(lambda: has_status(env, "RUNNING"), saying="it runs")
        env.ends = True
        await env.reaches("Complete")


async def test_a_submitter_that_is_deleted_is_not_made_again(env: RayJobEnv) -> None:
    await env.submit()
    async with env.operator():
        await until_async(lambda: has_clusters(env, 1), saying="there is a cluster")
        await env.set_cluster((await env.clusters())[0].name, state="ready")
        await env.reaches("Running")
        await env.client.delete(type((await env.submitters())[0]), "demo", env.namespace)
        status = await env.reaches("Failed")
    assert (status.reason, await env.submitters()) == ("SubmissionFailed", [])


async def test_what_belongs_to_another_is_left_alone(env: RayJobEnv) -> None:
    """A Job of the RayJob's name, which somebody else has made."""
    container = {"name": "x", "image": "x"}
    own = {
        "metadata": {"name": "demo", "labels": {"app.kubernetes.io/created-by": "kuberay-operator"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    await env.client.create(Job, own, env.namespace)
    await env.submit()
    async with env.operator():
        await until_async(lambda: has_clusters(env, 1), saying="there is a cluster")
        await env.set_cluster((await env.clusters())[0].name, state="ready")
        await until_async(lambda: told(env, "FailedToCreateRayJobSubmitter"), saying="it is told")
        assert (await env.status()).job_deployment_status == "Initializing"
    assert (await env.submitters())[0].spec["template"]["spec"]["containers"][0]["image"] == "x"


async def test_a_service_of_another_keeps_no_job_from_its_end(env: RayJobEnv) -> None:
    """The head's Service of a RayCluster that has the name of the RayJob."""
    ports = [{"name": "dashboard", "port": 8265}]
    await env.client.create(
        OwnedService, {"metadata": {"name": "demo-head-svc"}, "spec": {"ports": ports}}, env.namespace
    )
    await env.submit()
    async with env.operator(), env.simulation():
        await env.reaches("Complete")
        await until_async(lambda: told(env, "FailedToCreateService"), saying="it is told")
    there = await env.client.get(OwnedService, "demo-head-svc", env.namespace)
    assert not there.metadata.owner_references


@pytest.mark.parametrize("spec", [{"managedBy": "kueue.x-k8s.io/multikueue"}])
async def test_a_job_of_multikueue_is_left_alone(env: RayJobEnv, spec: dict[str, Any]) -> None:
    await env.submit(**spec)
    await env.submit("ours", **HTTP)
    async with env.operator(), env.simulation():
        await env.reaches("Complete", "ours")
        assert (await env.status()).job_deployment_status == ""


async def test_a_dashboard_that_asks_for_a_token_gets_that_of_its_cluster(
    envs: Callable[[], Awaitable[RayJobEnv]],
) -> None:
    env = await envs()
    async with FakeDashboard(token="rays") as secured:
        env.fake = secured
        secret = {"metadata": {"name": "mine"}, "stringData": {"auth_token": "rays"}}
        await env.client.create(_Secret, secret, env.namespace)
        spec = {**CLUSTER, "authOptions": {"mode": "token", "secretName": "mine"}}
        await env.submit(rayClusterSpec=spec, **HTTP)
        async with env.operator(), env.simulation():
            await env.reaches("Complete")


class _Secret(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Secret", "secrets")


async def test_a_raycronjob_makes_rayjobs_and_keeps_as_many_as_it_is_to(env: RayJobEnv) -> None:
    await env.cron(schedule="0 * * * *", successfulJobsHistoryLimit=1)
    async with env.simulation():
        for hours in (1, 2, 3):
            env.away = timedelta(hours=hours)
            async with env.operator():
                await until_async(lambda: have_run(env, hours), saying=f"{hours} have run")  # noqa: B023
    cron = await env.client.get(RayCronJob, "nightly", env.namespace)
    assert cron.status.active == ()
    assert cron.status.next_schedule_time is not None
    assert cron.status.last_schedule_time == cron.status.next_schedule_time - timedelta(hours=1)


async def have_run(env: RayJobEnv, count: int) -> bool:
    """Whether so many have run, and all but the last are gone."""
    held = await env.client.list(RayJob, Selection(namespace=env.namespace))
    states = [job.status.job_deployment_status for job in held]
    active = (await env.client.get(RayCronJob, "nightly", env.namespace)).status.active
    return len(env.fake.submissions) == count and states == ["Complete"] and not active


async def has_clusters(env: RayJobEnv, count: int) -> bool:
    return len(await env.clusters()) == count


async def has_status(env: RayJobEnv, status: str, name: str = "demo") -> bool:
    return (await env.status(name)).job_status == status


async def submitter_ended(env: RayJobEnv) -> bool:
    return all(job.ended for job in await env.submitters())


async def told(env: RayJobEnv, reason: str) -> bool:
    return reason in await reasons(env)
