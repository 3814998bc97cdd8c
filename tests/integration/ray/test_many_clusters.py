"""Many RayClusters cost as much each as a few."""

import asyncio

from integration.ray.ray_env import RayEnv
from unit.ray.ray_clusters import group


async def test_requests_of_a_cluster_do_not_depend_on_how_many_there_are(ray: RayEnv) -> None:
    async def come_up(names: list[str]) -> float:
        before = len(ray.writes)
        await asyncio.gather(*(ray.create(group(replicas=2), name=name) for name in names))
        for name in names:
            await ray.ready(name)
        await ray.quiet()
        return (len(ray.writes) - before) / len(names)

    few = await come_up([f"few-{number}" for number in range(2)])
    many = await come_up([f"many-{number}" for number in range(12)])
    # Three pods, a Service, and the status, which is written once a second at most.
    assert 6 <= few <= 9
    assert 6 <= many <= 9
