"""An operator is killed at each of its writes, Kubernetes' and Ray's, before it is sent or before its answer arrives,
and another one goes on: the end is the same, there was never a second cluster of a try, and no job ran twice."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.ray.cronjob import RayCronJob
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.kube import Selection
from gpu_control_plane.kube.errors import NotFound
from integration.ray.jobs.job_env import Kill, RayJobEnv, names
from waiting import until, until_async

AT_ONCE = 8


class Story(msgspec.Struct, frozen=True):
    """A RayJob from beginning to end."""

    spec: dict[str, Any]
    end: str
    submissions: int
    clusters: int
    """How many are left."""
    writes: int
    """More than it takes."""
    job_ends: tuple[str, ...] = ("SUCCEEDED",)


STORIES = {
    "the operator submits": Story(
        {"submissionMode": "HTTPMode", "shutdownAfterJobFinishes": True}, "Complete", 1, 0, 15
    ),
    "it is tried again": Story(
        {"submissionMode": "K8sJobMode", "backoffLimit": 1}, "Complete", 2, 1, 26, ("FAILED", "SUCCEEDED")
    ),
}


@pytest.mark.parametrize(
    ("name", "answered"),
    [
        pytest.param("the operator submits", False, id="before a write is sent"),
        pytest.param("the operator submits", True, id="before a write is answered"),
        # On the server this is the same as before the next write is sent.
        pytest.param("it is tried again", True, id="before a write is answered, with a second try"),
    ],
)
async def test_a_killed_operator_is_taken_over_from(
    envs: Callable[[], Awaitable[RayJobEnv]], name: str, answered: bool
) -> None:
    story, places, killed = STORIES[name], asyncio.Semaphore(AT_ONCE), []

    async def tell(after: int) -> None:
        async with places:
            env, kill = await envs(), Kill(after, answered=answered)
            env.job_ends = list(story.job_ends)
            await env.submit(**story.spec)
            async with env.simulation():
                async with env.operator(kill):
                    await until_async(lambda: _dead_or_done(env, kill, story), saying=f"killed after {after}")
                killed.append(kill.dead.is_set())
                async with env.operator():
                    await env.reaches(story.end)
                    await until_async(lambda: _has_clusters(env, story.clusters), saying="clusters are gone")
            await check(env, story)

    async with asyncio.TaskGroup() as group:
        for after in range(story.writes):
            group.create_task(tell(after))
    assert not all(killed), "there may be writes after which it was not killed"
    assert sum(killed) > 8


async def check(env: RayJobEnv, story: Story) -> None:
    ids = [one.submission_id for one in env.fake.submissions]
    assert len(ids) == len(set(ids)) == story.submissions
    status = await env.status()
    assert status.job_id == ids[-1]
    assert status.failed == story.submissions - 1
    assert status.succeeded == 1


async def test_a_job_that_is_deleted_is_told_to_stop_however_often_the_operator_is_killed(
    envs: Callable[[], Awaitable[RayJobEnv]],
) -> None:
    async def tell(after: int) -> None:
        env, kill = await envs(), Kill(after, answered=after % 2 == 0)
        env.ends = False
        await env.submit(submissionMode="HTTPMode")
        async with env.simulation(), env.operator():
            await env.reaches("Running")
            await until_async(lambda: _runs(env), saying="the job runs")
        await env.client.delete(RayJob, "demo", env.namespace)
        async with env.operator(kill):
            await until_async(lambda: _dead_or_gone(env, kill), saying="killed or gone")
        async with env.operator():
            await until_async(lambda: _gone(env), saying="the RayJob is gone")
        assert env.fake.stopped == [one.submission_id for one in env.fake.submissions]
        assert len(env.fake.stopped) == 1

    async with asyncio.TaskGroup() as group:
        for after in range(4):
            group.create_task(tell(after))


async def test_a_rayjob_of_a_raycronjob_is_made_once_however_often_the_operator_is_killed(
    envs: Callable[[], Awaitable[RayJobEnv]],
) -> None:
    async def tell(after: int, answered: bool) -> None:
        env, kill = await envs(), Kill(after, answered=answered)
        await env.cron(schedule="0 * * * *")
        env.away = timedelta(hours=1)
        async with env.simulation():
            async with env.operator(kill):
                await until(kill.dead.is_set)
            async with env.operator():
                await until_async(lambda: _cron_is_idle(env), saying="its RayJob has ended")
        assert len(await env.client.list(RayJob, Selection(namespace=env.namespace))) == 1
        assert len(env.fake.submissions) == 1

    async with asyncio.TaskGroup() as group:
        for after in range(4):
            group.create_task(tell(after, answered=False))
            group.create_task(tell(after, answered=True))


async def _cron_is_idle(env: RayJobEnv) -> bool:
    status = (await env.client.get(RayCronJob, "nightly", env.namespace)).status
    return status.last_successful_time is not None and not status.active


async def _dead_or_done(env: RayJobEnv, kill: Kill, story: Story) -> bool:
    if kill.dead.is_set():
        return True
    await asyncio.sleep(0.1)  # the API server has others to serve
    return (await env.status()).job_deployment_status == story.end and await _has_clusters(env, story.clusters)


async def _has_clusters(env: RayJobEnv, count: int) -> bool:
    return len(names(await env.clusters())) == count


async def _runs(env: RayJobEnv) -> bool:
    return [held["status"] for held in env.fake.jobs.values()] == ["RUNNING"] and (
        await env.status()
    ).job_status == "RUNNING"


async def _gone(env: RayJobEnv) -> bool:
    try:
        await env.client.get(RayJob, "demo", env.namespace)
    except NotFound:
        return True
    return False


async def _dead_or_gone(env: RayJobEnv, kill: Kill) -> bool:
    return kill.dead.is_set() or await _gone(env)
