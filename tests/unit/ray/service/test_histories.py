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
from unit.ray.service.builders import POOL, group, service_of
from unit.ray.service.service_model import RayServiceModel

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

    def __init__(self, model: RayServiceModel) -> None:
        self._world = model
        self._backend, self._could, self._demand = "", False, 0
        model.checks.append(self._look)
        model.before.append(self._remember)

    def _remember(self, action: Action) -> None:
        model = self._world
        if isinstance(action, Delete) and isinstance(action.item, RayCluster) and action.item.name == model.backend:
            stops = is_true(model.service.status.conditions, ServiceCondition.SUSPENDING) or model.service.spec.suspend
            assert stops or not model.can_serve(model.backend), f"{model.backend} answers, and is deleted"
        self._backend, self._could = self._world.backend, self._world.can_serve(self._world.backend)
        self._demand = self._world.demand_of_clusters().get(POOL, 0)

    def _look(self, action: Action) -> None:
        model = self._world
        if isinstance(action, Ensure) and action.manifest["metadata"]["name"] == serve_service_of(model.service):
            assert model.backend, "the Service points to nothing"
            moved = model.backend != self._backend
            assert not moved or not self._could or model.can_serve(model.backend), (
                f"requests are taken from {self._backend}, which answers, to {model.backend}, which does not"
            )
        budget = model.budget()
        if budget is not None and model.both_have_workers():
            allowed = max(self._demand, budget.allowance.get(POOL, 0))
            assert model.demand_of_clusters().get(POOL, 0) <= allowed, "cards are asked for twice"
        assert model.active != model.pending or not model.active, "one cluster has both roles"


def calm(model: RayServiceModel) -> None:
    """After a few looks with nothing happening, requests go to where they are answered, if that is anywhere."""
    for _ in range(4):
        model.reconcile()
    able = [name for name in (model.active, model.pending) if model.can_serve(name)]
    backend = model.backend
    held = model.clusters.get(backend)
    # Of a cluster without its head nothing is heard, and pods that are ready are believed.
    believed = held is not None and not model.head_runs(held) and bool(model.serving(held))
    assert not able or not backend or believed or model.can_serve(backend), (
        f"requests go to {backend}, and {able} would answer"
    )


def play(model: RayServiceModel, rng: random.Random, steps: int, *, incremental: bool) -> None:
    for _ in range(steps):
        match rng.randrange(16):
            case 0 | 1 | 2 | 3:
                model.reconcile()
            case 4 | 5 | 6:
                model.reconcile(crash_after=rng.randrange(6))
            case 7 | 8 | 9:
                model.cluster_controller()
            case 10 | 11:
                model.kubelet(only=rng.randrange(1, 6))
            case 12:
                model.kubelet()
            case 13:
                model.now += timedelta(seconds=rng.choice((1, 10, 60, 700)))
            case 14 if incremental and rng.random() < 0.4:
                model.change(upgradeStrategy=rng.choice((INCREMENTAL, AT_ONCE)))
            case 14:
                change(model, rng, incremental=incremental)
            case _:
                calm(model)


def change(model: RayServiceModel, rng: random.Random, *, incremental: bool) -> None:
    what = rng.randrange(15)
    if what <= 5:
        image = rng.choice(IMAGES)
        groups = [group(replicas=rng.randrange(1, 4), image=image)]
        if rng.random() < 0.3:
            groups.append(group("more", replicas=1, image=image))
        model.change_cluster(*groups, image=image, **({"enableInTreeAutoscaling": True} if incremental else {}))
    elif what == 6 and model.pods:
        model.delete_pod(rng.choice(sorted(model.pods)))
    elif what == 7:
        model.others = rng.randrange(3)
    elif what == 8:
        model.serve.applications_fail = {rng.choice(IMAGES)} if rng.random() < 0.5 else set()
    elif what == 9 and model.clusters and rng.random() < 0.5:
        model.delete(model.clusters[rng.choice(sorted(model.clusters))])
    elif what == 10:
        model.change(suspend=not model.service.spec.suspend)
    elif what == 11:
        body = model.service.spec.serve_config_v2
        model.change(serveConfigV2=f"{body}# changed\n" if rng.random() < 0.5 else body.replace("demo", "other"))
    elif what == 12:
        model.options = RayOptions(version=f"gpu-control-plane-{rng.randrange(3)}")
    elif what == 13 and not incremental:
        model.quota = rng.choice((3, 4, 10**6))
    elif what == 14:
        model.gateway_known = not model.gateway_known


def settled(model: RayServiceModel, *, incremental: bool) -> None:
    model.serve.applications_fail = set()
    model.others = 0
    model.quota, model.gateway_known = 10**6, True
    if model.service.spec.suspend:
        model.change(suspend=False)
    model.settle(150, step=timedelta(seconds=90))
    desired = model.service.spec.ray_cluster_config
    assert not model.pending, f"an upgrade does not end: {model.why()}"
    assert list(model.clusters) == [model.active], f"clusters are left: {list(model.clusters)}"
    assert model.backend == model.active
    assert model.can_serve(model.active)
    assert model.ready(), model.why()
    held = model.clusters[model.active]
    assert held.spec.head_group_spec == desired.head_group_spec
    found = [(each.group_name, group_replicas(each)) for each in held.spec.worker_group_specs]
    if not incremental:
        assert found == [(each.group_name, group_replicas(each)) for each in desired.worker_group_specs]
    left = {Annotation.HANDOVER.value, Annotation.UNUSED_SINCE.value} & held.metadata.annotations.keys()
    assert not left
    held_shares = model.shares()
    divided = incremental and is_incremental(model.service)
    assert held_shares == ({serve_service_name(model.active): 100} if divided else {}), held_shares
    quiet = model.reconcile(), model.service
    assert quiet[1] is model.service
    puts = len(model.serve.puts)
    model.settle(2)
    assert len(model.serve.puts) == puts, "Ray Serve is told again what it knows"


@given(mode=st.sampled_from(("auto", "always", "never")), seed=st.integers(0, 2**32), cards=st.integers(4, 9))
def test_whatever_happens_it_ends_as_the_spec_says(mode: str, seed: int, cards: int) -> None:
    rng = random.Random(seed)
    cards = 20 if mode == "never" else cards
    model = RayServiceModel(
        service_of(group(replicas=3), annotations={Annotation.IN_PLACE_UPGRADE.value: mode}), cards=cards, seed=seed
    )
    Watch(model)
    model.settle(rng.choice((0, 3, 12)))
    play(model, rng, 60, incremental=False)
    settled(model, incremental=False)


@given(seed=st.integers(0, 2**32))
def test_an_incremental_upgrade_ends_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    service = service_of(group(replicas=2), upgradeStrategy=INCREMENTAL, cluster={"enableInTreeAutoscaling": True})
    model = RayServiceModel(service, seed=seed)
    Watch(model)
    model.settle(rng.choice((0, 3, 12)))
    play(model, rng, 60, incremental=True)
    settled(model, incremental=True)
