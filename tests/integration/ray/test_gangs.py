"""Groups of workers that need cards of a pool start together, on a real API server."""

import secrets

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.ray.cluster.pod_state import is_gated
from gpu_control_plane.ray.owned import RayPod
from integration.ray.ray_env import RayEnv, gpu_group
from waiting import until_async


def new_pool() -> str:
    return f"pool-{secrets.token_hex(3)}"


async def gated(ray: RayEnv, cluster: str = "rc") -> int:
    return sum(is_gated(pod) for pod in await ray.pods(cluster, "workers"))


async def open_and_gated(ray: RayEnv, cluster: str, may: int, wait: int) -> bool:
    pods = await ray.pods(cluster, "workers")
    return (len(pods) - sum(map(is_gated, pods)), sum(map(is_gated, pods))) == (may, wait)


async def all_gated(ray: RayEnv, count: int, cluster: str = "rc") -> None:
    await until_async(lambda: open_and_gated(ray, cluster, 0, count), within=10)


async def test_a_group_starts_when_all_of_it_has_room(ray: RayEnv) -> None:
    pool = new_pool()
    resource = await ray.pool(pool, total=4, available=2)
    await ray.create(gpu_group(resource, 3))
    await all_gated(ray, 3)

    async def said() -> bool:
        held = await ray.condition("WorkersReady")
        return held is not None and f"it starts when 3 units of {resource} are free at once" in held.message

    await until_async(said, within=10)
    assert await ray.says("CapacitySufficient", "True")
    await ray.pool(pool, total=4, available=3)
    await ray.ready()
    assert await gated(ray) == 0
    await until_async(lambda: _has_event(ray, "WorkersReleased"), within=5)
    assert await _has_event(ray, "WorkersWaitForCards")


async def _has_event(ray: RayEnv, reason: str) -> bool:
    return reason in await ray.events()


async def test_a_worker_that_is_made_anew_waits_for_nobody(ray: RayEnv) -> None:
    pool = new_pool()
    resource = await ray.pool(pool, total=2)
    await ray.create(gpu_group(resource, 2))
    await ray.ready()
    await ray.pool(pool, total=2, available=0)
    lost = (await ray.pods(group="workers"))[0]
    await ray.kubelet.fail(lost.name)

    async def replaced() -> bool:
        pods = await ray.pods(group="workers")
        return len(pods) == 2 and lost.name not in {pod.name for pod in pods}

    await until_async(replaced, within=10)
    assert await gated(ray) == 0


async def test_of_two_groups_only_one_starts_where_both_would_not_fit(ray: RayEnv) -> None:
    pool = new_pool()
    resource = await ray.pool(pool, total=5, available=0)
    await ray.create(gpu_group(resource, 3), name="first")
    await all_gated(ray, 3, "first")
    await ray.create(gpu_group(resource, 3), name="second")
    await all_gated(ray, 3, "second")
    await ray.pool(pool, total=5)
    await ray.ready("first")
    # The pool's status does not count them yet: two are free in truth.
    assert await open_and_gated(ray, "second", 0, 3)


async def test_the_next_leader_releases_what_waits(ray: RayEnv) -> None:
    pool = new_pool()
    resource = await ray.pool(pool, total=2, available=0)
    await ray.create(gpu_group(resource, 2))
    await all_gated(ray, 2)
    await ray.stop_operator()
    await ray.pool(pool, total=2)
    await ray.start_operator()
    await ray.ready()


async def test_a_release_that_was_cut_short_is_carried_to_its_end(ray: RayEnv) -> None:
    """Or a person has taken one gate away: what is there cannot be taken back."""
    resource = await ray.pool(new_pool(), total=8, available=0)
    await ray.create(gpu_group(resource, 3))
    await all_gated(ray, 3)
    pod = (await ray.pods(group="workers"))[0]
    await ray.client.patch(RayPod, pod.name, {"spec": {"schedulingGates": None}}, namespace=ray.namespace)
    await ray.ready()


async def test_a_pool_without_a_status_is_waited_for(ray: RayEnv) -> None:
    pool = new_pool()
    await ray.client.create(GPUPool, {"metadata": {"name": pool}, "spec": {}})
    await ray.create(gpu_group(f"gpu.deckhouse.io/{pool}", 2))
    await all_gated(ray, 2)
    await ray.pool(pool, total=2)
    await ray.ready()


async def test_workers_do_not_wait_for_a_pool_that_is_gone(ray: RayEnv) -> None:
    pool = new_pool()
    resource = await ray.pool(pool, total=2, available=0)
    await ray.create(gpu_group(resource, 2))
    await all_gated(ray, 2)
    await ray.client.delete(GPUPool, pool)
    await ray.ready()


async def test_a_pool_that_can_never_serve_the_group_is_named_at_once(ray: RayEnv) -> None:
    resource = await ray.pool(new_pool(), total=2)
    await ray.create(gpu_group(resource, 3))
    await until_async(lambda: ray.says("CapacitySufficient", "False"), within=10)
    held = await ray.condition("CapacitySufficient")
    assert held is not None
    assert f"3 units of {resource}" in held.message
    await until_async(lambda: _has_event(ray, "CapacityInsufficient"), within=5)


async def test_a_label_switches_it_off(ray: RayEnv) -> None:
    resource = await ray.pool(new_pool(), total=2, available=0)
    await ray.create(gpu_group(resource, 2), labels={Label.GANG: "false"})
    await ray.ready()


async def test_with_autoscaling_only_the_fewest_wait_for_each_other(ray: RayEnv) -> None:
    pool = new_pool()
    resource = await ray.pool(pool, total=9, available=1)
    await ray.create(gpu_group(resource, 4, minReplicas=2), enableInTreeAutoscaling=True)
    await all_gated(ray, 4)
    await ray.pool(pool, total=9, available=2)
    await ray.ready()
