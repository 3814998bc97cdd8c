"""Makes and deletes the pods of RayClusters, and none twice.

A pod gets its name from the API server, so that a creation which was sent twice would be two pods. The cache shows our
creations as soon as they are answered. Where an answer was lost, and what another leader has made last, no cache shows
for certain: then the API server is asked first.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import HEAD_GROUP, Label
from gpu_control_plane.kube.client import Client, Selection
from gpu_control_plane.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerError, TooManyRequests
from gpu_control_plane.kube.expectations import LostAnswers
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.ray.cluster.manifests.context import Manifest
from gpu_control_plane.ray.cluster.worker_groups import PodOrder, Removal
from gpu_control_plane.ray.owned import OF_CLUSTERS, RayPod
from gpu_control_plane.ray.watched import Watched

_MOST_AT_ONCE: Final = 16
_NAME: Final = re.compile(r'^[Pp]ods? "[^"]*" is (?:forbidden|invalid): ')
"""Before the reason: with the name that this pod would have had, and that the next one will not."""


class RefusedPods(msgspec.Struct, frozen=True):
    """Pods of a group that the API server does not accept, and would not if it were asked again at once."""

    group: str
    message: str


class PodWriter:
    """The one writer of pods of RayClusters."""

    def __init__(self, client: Client, pods: Watched[RayPod], namespaces: Sequence[str]) -> None:
        self._client = client
        self._pods = pods
        self._namespaces = tuple(namespaces) or (None,)
        self._before_us = LostAnswers()
        self._reading = asyncio.Lock()
        self._lost: dict[str, LostAnswers] = {}

    def suspect(self) -> None:
        """This process begins to lead: another one may have made pods that the cache does not show yet."""
        self._before_us.suspect()
        self._lost.clear()

    def forget(self, uid: str) -> None:
        self._lost.pop(uid, None)

    async def read_back(self, cluster: RayCluster) -> bool:
        """Ask the API server for pods that the cache may not show; whether that was needed."""
        if self._before_us.possible:
            # One list serves all clusters.
            async with self._reading:
                if self._before_us.possible:
                    for namespace in self._namespaces:
                        await self._learn(Selection(namespace=namespace, labels=OF_CLUSTERS.labels))
                    self._before_us.read_back()
            return True
        lost = self._lost_of(cluster)
        if not lost.possible:
            return False
        labels = f"{Label.CLUSTER}={cluster.name}"
        await self._learn(Selection(namespace=cluster.metadata.namespace, labels=labels))
        lost.read_back()
        return True

    async def create(
        self, cluster: RayCluster, orders: Iterable[PodOrder], manifest: Callable[[PodOrder], Manifest]
    ) -> tuple[list[tuple[PodOrder, RayPod]], list[RefusedPods]]:
        """Make pods, the head's first; what was made, and what was refused. Of a group whose pods are refused, no more
        are asked for; where the head is, no workers are."""
        by_group: dict[str, list[PodOrder]] = {}
        for order in orders:
            by_group.setdefault(order.group, []).append(order)
        made: list[tuple[PodOrder, RayPod]] = []
        refused: list[RefusedPods] = []
        for group in sorted(by_group, key=lambda name: name != HEAD_GROUP):
            refusal = await self._create_group(cluster, by_group[group], manifest, made)
            if refusal is not None:
                refused.append(RefusedPods(group, refusal))
                if group == HEAD_GROUP:
                    break
        return made, refused

    async def delete(self, removals: Iterable[Removal]) -> list[tuple[Removal, str]]:
        """Delete pods; those that could not be, with the reason."""
        failed: list[tuple[Removal, str]] = []

        async def delete(removal: Removal) -> None:
            metadata = removal.pod.metadata
            try:
                await self._client.delete(RayPod, metadata.name, metadata.namespace, uid=metadata.uid)
            except (NotFound, Conflict):
                return  # It is gone, or another one has its name.
            except ApiError as error:
                if _is_passing(error):
                    raise
                failed.append((removal, error.message))

        chosen = list(removals)
        for start in range(0, len(chosen), _MOST_AT_ONCE):
            await gather_all(delete(removal) for removal in chosen[start : start + _MOST_AT_ONCE])
        return failed

    async def _create_group(
        self,
        cluster: RayCluster,
        orders: Sequence[PodOrder],
        manifest: Callable[[PodOrder], Manifest],
        made: list[tuple[PodOrder, RayPod]],
    ) -> str | None:
        """Make pods of one group, ever more at once: a quota that is used up is not asked a hundred times."""
        start, size = 0, 1
        while start < len(orders):
            batch = orders[start : start + size]
            refusals: list[str] = []

            async def create(order: PodOrder, refusals: list[str] = refusals) -> None:
                pod = await self._create(cluster, manifest(order))
                if isinstance(pod, str):
                    refusals.append(pod)
                else:
                    made.append((order, pod))

            with self._lost_of(cluster).unless_answered():
                await gather_all(create(order) for order in batch)
            if refusals:
                return refusals[0]
            start, size = start + len(batch), min(2 * size, _MOST_AT_ONCE)
        return None

    async def _create(self, cluster: RayCluster, manifest: Manifest) -> RayPod | str:
        namespace = cluster.metadata.namespace
        try:
            return await self._client.create(RayPod, manifest, namespace)
        except AlreadyExists as error:
            # Only where the name is given. It may be ours, and the cache not there yet.
            name = manifest["metadata"].get("name", "")
            there = await self._client.get(RayPod, name, namespace) if name else None
            if there is None or not any(owner.uid == cluster.metadata.uid for owner in there.metadata.owner_references):
                return error.message
            self._pods.learn(there)
            return there
        except ApiError as error:
            if _is_passing(error):
                raise
            return _NAME.sub("", error.message)

    async def _learn(self, selection: Selection) -> None:
        async for page in self._client.pages(RayPod, selection):
            for pod in page.items:
                self._pods.learn(pod)

    def _lost_of(self, cluster: RayCluster) -> LostAnswers:
        lost = self._lost.get(cluster.metadata.uid)
        if lost is None:
            lost = self._lost[cluster.metadata.uid] = LostAnswers()
            lost.read_back()
        return lost


def _is_passing(error: ApiError) -> bool:
    """Whether it is the API server's trouble, and not the pod's."""
    return isinstance(error, ServerError | TooManyRequests)
