"""After a take-over: our operator has begun, and no pod of Ray has gone or been restarted."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.ray.cluster import ClusterCondition, RayCluster
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube import Cache, Client, Object
from gpu_control_plane.kube.conditions import is_true
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.ray.owned import OF_CLUSTERS, RayPod

_KINDS: Final[tuple[type[Object], ...]] = (RayCluster, RayService)
"""Kinds that say so while another operator is active."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    begun: bool
    """Whether no object says any more that KubeRay's operator is active."""
    pods: int
    """Pods that ran before and run still, as they were."""
    gone: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()


async def verify_take_over(
    client: Client, before: Iterable[RayPod], *, progress: Callable[[str], None], timeout: float
) -> Verification:
    """Wait until our operator has begun, then compare the pods with those from before."""
    begun = await _has_begun(client, progress, timeout)
    now = {pod.metadata.uid: pod for pod in await client.list(RayPod, OF_CLUSTERS)}
    return compare(before, now, begun=begun)


def compare(before: Iterable[RayPod], now: Mapping[str, RayPod], *, begun: bool) -> Verification:
    """What has become of pods that ran."""
    running = [pod for pod in before if pod.running and not pod.deleting]
    gone = [pod for pod in running if pod.metadata.uid not in now]
    kept = [(pod, now[pod.metadata.uid]) for pod in running if pod.metadata.uid in now]
    restarted = [pod for pod, after in kept if _restarts(after) > _restarts(pod)]
    return Verification(
        begun=begun,
        pods=len(kept) - len(restarted),
        gone=tuple(sorted(str(pod.key) for pod in gone)),
        restarted=tuple(sorted(str(pod.key) for pod in restarted)),
    )


async def _has_begun(client: Client, progress: Callable[[str], None], timeout: float) -> bool:
    caches: list[Cache[Object]] = [Cache(kind, ApiSource(client, kind), metrics=client.metrics) for kind in _KINDS]
    changed = asyncio.Event()
    for cache in caches:
        cache.on_change(lambda _old, _new: changed.set())
    watching = [asyncio.create_task(cache.run()) for cache in caches]
    try:
        async with asyncio.timeout(timeout):
            for cache in caches:
                await cache.synced()
            while waiting := [item for cache in caches for item in cache if _says_other_operator_active(item)]:
                progress(f"{len(waiting)} still say that KubeRay's operator is active")
                changed.clear()
                await changed.wait()
    except TimeoutError:
        return False
    finally:
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)
    return True


def _says_other_operator_active(item: Object) -> bool:
    conditions = item.status.conditions  # type: ignore[attr-defined]  # both kinds have them
    return not item.deleting and is_true(conditions, ClusterCondition.OTHER_OPERATOR_ACTIVE)


def _restarts(pod: RayPod) -> int:
    return sum(status.restart_count for status in pod.status.container_statuses)
