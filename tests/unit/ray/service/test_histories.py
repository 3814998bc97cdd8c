"""Random histories of a RayService: changes of its spec, crashes between any two writes, pods that come and go slowly,
cards that others take, quotas, other releases of the operator. Whatever happens, requests are not sent to where nobody
answers, and cards are not asked for twice; and when it has calmed down, the service is as its spec says."""

import random
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.api.ray.service import ServiceCondition
from gpu_control_plane.kube.conditions import is_true
from gpu_control_plane.ray.demand import group_replicas
from gpu_control_plane.ray.names import serve_service_name
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.service.actions import Action, Delete, Ensure
from gpu_control_plane.ray.service.backend import serve_service_of
from gpu_control_plane.ray.service.gateway_use import is_incremental
from unit.ray.service.world import POOL, World, group, service_of

IMAGES = ("ray:1", "ray:2", "ray:3")
INCREMENTAL = {
    "type": "NewClusterWithIncrementalUpgrade",
    "clusterUpgradeOptions": {
        "stepSizePercent": 30,
        "intervalSeconds": 5,
        "maxSurgePercent": 40,
        "gatewayClassName": "g",
    },
}
AT_ONCE = {"type": "NewCluster"}


class Watch:
    """Looks at every write."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._backend, self._could, self._demand = "", False, 0
        world.checks.append(self._look)
        world.before.append(self._remember)

    def _remember(self, action: Action) -> None:
        world = self._world
        if isinstance(action, Delete) and isinstance(action.item, RayCluster) and action.item.name == world.backend:
            stops = is_true(world.service.status.conditions, ServiceCondition.SUSPENDING) or world.service.spec.suspend
            assert stops or not world.can_serve(world.backend), f"{world.backend} answers, and is deleted"
        self._backend, self._could = self._world.backend, self._world.can_serve(self._world.backend)
        self._demand = self._world.demand_of_clusters().get(POOL, 0)

    def _look(self, action: Action) -> None:
        world = self._world
        if isinstance(action, Ensure) and action.manifest["metadata"]["name"] == serve_service_of(world.service):
            assert world.backend, "the Service points to nothing"
            moved = world.backend != self._backend
            assert not moved or not self._could or world.can_serve(world.backend), (
                f"requests are taken from {self._backend}, which answers, to {world.backend}, which does not"
            )
        budget = world.budget()
        if budget is not None and world.both_have_workers():
            allowed = max(self._demand, budget.allowance.get(POOL, 0))
            assert world.demand_of_clusters().get(POOL, 0) <= allowed, "cards are asked for twice"
        assert world.active != world.pending or not world.active, "one cluster has both roles"


def calm(world: World) -> None:
    """After a few looks with nothing happening, requests go to where they are answered, if that is anywhere."""
    for _ in range(4):
        world.reconcile()
    able = [name for name in (world.active, world.pending) if world.can_serve(name)]
    backend = world.backend
    held = world.clusters.get(backend)
    # Of a cluster without its head nothing is heard, and pods that are ready are believed.
    believed = held is not None and not world.head_runs(held) and bool(world.serving(held))
    assert not able or not backend or believed or world.can_serve(backend), (
        f"requests go to {backend}, and {able} would answer"
    )


def play(world: World, rng: random.Random, steps: int, *, incremental: bool) -> None:
    for _ in range(steps):
        match rng.randrange(16):
            case 0 | 1 | 2 | 3:
                world.reconcile()
            case 4 | 5 | 6:
                world.reconcile(crash_after=rng.randrange(6))
            case 7 | 8 | 9:
                world.cluster_controller()
            case 10 | 11:
                world.kubelet(only=rng.randrange(1, 6))
            case 12:
                world.kubelet()
            case 13:
                world.now += timedelta(seconds=rng.choice((1, 10, 60, 700)))
            case 14 if incremental and rng.random() < 0.4:
                world.change(upgradeStrategy=rng.choice((INCREMENTAL, AT_ONCE)))
            case 14:
                change(world, rng, incremental=incremental)
            case _:
                calm(world)


def change(world: World, rng: random.Random, *, incremental: bool) -> None:
    what = rng.randrange(15)
    if what <= 5:
        image = rng.choice(IMAGES)
        groups = [group(replicas=rng.randrange(1, 4), image=image)]
        if rng.random() < 0.3:
            groups.append(group("more", replicas=1, image=image))
        world.change_cluster(*groups, image=image, **({"enableInTreeAutoscaling": True} if incremental else {}))
    elif what == 6 and world.pods:
        world.delete_pod(rng.choice(sorted(world.pods)))
    elif what == 7:
        world.others = rng.randrange(3)
    elif what == 8:
        world.applications_fail = {rng.choice(IMAGES)} if rng.random() < 0.5 else set()
    elif what == 9 and world.clusters and rng.random() < 0.5:
        world.delete(world.clusters[rng.choice(sorted(world.clusters))])
    elif what == 10:
        world.change(suspend=not world.service.spec.suspend)
    elif what == 11:
        body = world.service.spec.serve_config_v2
        world.change(serveConfigV2=f"{body}# changed\n" if rng.random() < 0.5 else body.replace("demo", "other"))
    elif what == 12:
        world.options = RayOptions(version=f"gpu-control-plane-{rng.randrange(3)}")
    elif what == 13 and not incremental:
        world.quota = rng.choice((3, 4, 10**6))
    elif what == 14:
        world.gateway_known = not world.gateway_known


def settled(world: World, *, incremental: bool) -> None:
    world.applications_fail = set()
    world.others = 0
    world.quota, world.gateway_known = 10**6, True
    if world.service.spec.suspend:
        world.change(suspend=False)
    world.settle(150, step=timedelta(seconds=90))
    desired = world.service.spec.ray_cluster_config
    assert not world.pending, f"an upgrade does not end: {world.why()}"
    assert list(world.clusters) == [world.active], f"clusters are left: {list(world.clusters)}"
    assert world.backend == world.active
    assert world.can_serve(world.active)
    assert world.ready(), world.why()
    held = world.clusters[world.active]
    assert held.spec.head_group_spec == desired.head_group_spec
    found = [(each.group_name, group_replicas(each)) for each in held.spec.worker_group_specs]
    if not incremental:
        assert found == [(each.group_name, group_replicas(each)) for each in desired.worker_group_specs]
    left = {Annotation.HANDOVER.value, Annotation.UNUSED_SINCE.value} & held.metadata.annotations.keys()
    assert not left
    held_shares = world.shares()
    divided = incremental and is_incremental(world.service)
    assert held_shares == ({serve_service_name(world.active): 100} if divided else {}), held_shares
    quiet = world.reconcile(), world.service
    assert quiet[1] is world.service
    puts = len(world.puts)
    world.settle(2)
    assert len(world.puts) == puts, "Ray Serve is told again what it knows"


@given(mode=st.sampled_from(("auto", "always", "never")), seed=st.integers(0, 2**32), cards=st.integers(4, 9))
def test_whatever_happens_it_ends_as_the_spec_says(mode: str, seed: int, cards: int) -> None:
    rng = random.Random(seed)
    cards = 20 if mode == "never" else cards
    world = World(
        service_of(group(replicas=3), annotations={Annotation.IN_PLACE_UPGRADE.value: mode}), cards=cards, seed=seed
    )
    Watch(world)
    world.settle(rng.choice((0, 3, 12)))
    play(world, rng, 60, incremental=False)
    settled(world, incremental=False)


@given(seed=st.integers(0, 2**32))
def test_an_incremental_upgrade_ends_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    service = service_of(group(replicas=2), upgradeStrategy=INCREMENTAL, cluster={"enableInTreeAutoscaling": True})
    world = World(service, seed=seed)
    Watch(world)
    world.settle(rng.choice((0, 3, 12)))
    play(world, rng, 60, incremental=True)
    settled(world, incremental=True)
