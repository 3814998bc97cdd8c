"""A RayCluster that keeps state in Redis goes when its keys are gone, on a real API server."""

from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Annotation, Finalizer
from gpu_control_plane.ray.owned import OwnedJob
from integration.ray.ray_env import RayEnv
from unit.ray.ray_clusters import group
from waiting import until_async

REDIS = {"redisAddress": "redis:6379"}


async def gone(ray: RayEnv) -> bool:
    return "rc" not in await ray.objects(RayCluster)


async def job_is_there(ray: RayEnv) -> bool:
    return "rc-redis-cleanup" in await ray.objects(OwnedJob)


async def delete(ray: RayEnv) -> None:
    await ray.client.delete(RayCluster, "rc", ray.namespace)


async def test_the_keys_in_redis_go_after_the_head_and_before_the_cluster(ray: RayEnv) -> None:
    await ray.create(group(), gcsFaultToleranceOptions=REDIS)
    cluster = await ray.ready()
    assert Finalizer.REDIS_CLEANUP in cluster.metadata.finalizers
    ray.kubelet.may_go = lambda pod: not pod.is_head
    await delete(ray)
    await until_async(lambda: _only_the_head(ray), within=10)
    assert not await job_is_there(ray)
    ray.kubelet.may_go = lambda _pod: True
    ray.kubelet.look_again()
    await until_async(lambda: job_is_there(ray), within=10)
    assert not await gone(ray)
    await ray.kubelet.complete((await ray.objects(OwnedJob))["rc-redis-cleanup"])
    await until_async(lambda: gone(ray), within=10)


async def _only_the_head(ray: RayEnv) -> bool:
    return [pod.is_head and pod.deleting for pod in await ray.pods()] == [True]


async def test_a_cleanup_that_takes_too_long_does_not_keep_the_cluster(ray: RayEnv) -> None:
    await ray.create(gcsFaultToleranceOptions=REDIS, annotations={Annotation.FT_DELETION_TIMEOUT: "2"})
    await ray.ready()
    await delete(ray)
    await until_async(lambda: gone(ray), within=10)
    await until_async(lambda: _forced(ray), within=5)


async def _forced(ray: RayEnv) -> bool:
    return "ForceDeletedStuckCluster" in await ray.events()


async def test_the_operator_may_end_between_any_two_steps(ray: RayEnv) -> None:
    await ray.create(group(), gcsFaultToleranceOptions=REDIS)
    await ray.ready()
    await ray.stop_operator()
    await delete(ray)
    await ray.start_operator()
    await until_async(lambda: job_is_there(ray), within=10)
    await ray.stop_operator()
    await ray.kubelet.complete((await ray.objects(OwnedJob))["rc-redis-cleanup"])
    await ray.start_operator()
    await until_async(lambda: gone(ray), within=10)


async def test_an_invalid_cluster_can_be_deleted(ray: RayEnv) -> None:
    await ray.create(group(minReplicas=5, maxReplicas=2), gcsFaultToleranceOptions=REDIS)
    await until_async(lambda: ray.says("Valid", "False"), within=10)
    await delete(ray)

    async def goes() -> bool:
        for job in (await ray.objects(OwnedJob)).values():
            await ray.kubelet.complete(job)
        return await gone(ray)

    await until_async(goes, within=10)


async def test_without_cleanup_nothing_keeps_the_cluster(ray: RayEnv) -> None:
    await ray.create(gcsFaultToleranceOptions=REDIS)
    await ray.ready()
    await ray.stop_operator()
    ray.options = replace(ray.options, redis_cleanup=False)
    ray.settings = replace(ray.settings, options=ray.options)
    await ray.start_operator()
    await delete(ray)
    await until_async(lambda: gone(ray), within=10)
    assert not await job_is_there(ray)
