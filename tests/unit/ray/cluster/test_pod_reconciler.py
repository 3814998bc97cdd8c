"""What the reconciler of pods remembers of what was refused, and how much it does in one go."""

import asyncio
import random
from collections.abc import Iterable
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.ray.cluster.attempts import Attempts
from gpu_control_plane.ray.cluster.desired import Desired
from gpu_control_plane.ray.cluster.manifests import ClusterContext, recreate_hash
from gpu_control_plane.ray.cluster.pod_reconciler import PodReconciler
from gpu_control_plane.ray.cluster.status import Failure
from gpu_control_plane.ray.cluster.worker_groups import PodOrder, Removal
from gpu_control_plane.ray.options import RayOptions
from unit.ray.cluster.pod_world import VERSION, PodWorld, hashes
from unit.ray.ray_clusters import group, ray_cluster


class _Reconciled:
    """A cluster whose pods are in a `PodWorld`, and an API server that may refuse to delete them."""

    def __init__(self, cluster: RayCluster) -> None:
        self.world = PodWorld(cluster)
        self.refuses = False
        self.made: list[int] = []
        events = SimpleNamespace(normal=self._say, warning=self._say)
        parts: Any = SimpleNamespace(
            runtime=SimpleNamespace(client=None, events=events),
            settings=SimpleNamespace(options=RayOptions(version=VERSION)),
            now=lambda: self.world.now,
        )
        caches: Any = SimpleNamespace(pods_of=lambda _cluster: tuple(self.world.pods.values()))
        writer: Any = self
        rng = random.Random(1)
        self.reconciler = PodReconciler(parts, caches, writer, Attempts(timedelta(minutes=1), rng), rng)

    def reconcile(self) -> datetime | None:
        cluster = self.world.cluster
        wanted = Desired(
            context=ClusterContext(cluster=cluster),
            template_hashes=hashes(cluster),
            recreate_hash=recreate_hash(cluster.spec),
        )
        return asyncio.run(self.reconciler.reconcile(cluster, wanted))

    @property
    def failure(self) -> Failure | None:
        return self.reconciler.failure(self.world.cluster)

    async def read_back(self, _cluster: RayCluster) -> bool:
        return False

    async def delete(self, removals: Iterable[Removal]) -> list[tuple[Removal, str]]:
        if self.refuses:
            return [(removal, "a webhook denied the request") for removal in removals]
        for removal in removals:
            self.world.delete(removal.pod.name)
        return []

    async def create(
        self, _cluster: RayCluster, orders: Iterable[PodOrder], _manifest: object
    ) -> tuple[list[object], list[object]]:
        made = [(order, self.world.make(order)) for order in orders]
        self.made.append(len(made))
        return [*made], []

    def _say(self, *_args: object, **_more: object) -> None:
        pass


def test_a_deletion_that_was_refused_is_over_when_the_pod_is_gone() -> None:
    env = _Reconciled(ray_cluster(group(replicas=3)))
    env.world.settle()
    env.world.cluster, env.refuses = ray_cluster(group(replicas=2)), True
    due = env.reconcile()
    assert env.failure is not None
    assert due is not None
    env.reconcile()  # Nothing has changed.
    assert env.failure is not None
    for pod in env.world.of("workers")[-1:]:
        env.world.delete(pod.name)
    assert env.reconcile() is None
    assert env.failure is None


def test_a_deletion_that_was_refused_is_tried_again_later() -> None:
    env = _Reconciled(ray_cluster(group(replicas=3)))
    env.world.settle()
    env.world.cluster, env.refuses = ray_cluster(group(replicas=2)), True
    due = env.reconcile()
    assert due is not None
    env.refuses, env.world.now = False, due
    env.reconcile()
    assert len(env.world.of("workers")) == 2
    assert env.failure is None


def test_a_large_cluster_lets_others_have_their_turn_between_its_pods() -> None:
    env = _Reconciled(ray_cluster(group(replicas=300)))
    rounds = 0
    while env.reconcile() is not None:
        rounds += 1
    assert len(env.world.of("workers")) == 300
    assert max(env.made) == 128
    assert rounds == 2
