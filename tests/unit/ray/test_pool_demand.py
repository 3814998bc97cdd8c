"""Whether pools could ever serve a RayCluster: a sentence at once, and none where cards may come free."""

import pytest

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.ray.pool_demand import cluster_unserved
from gpu_control_plane.rules.ray.gpus import PoolFacts, PoolResources
from unit.ray.ray_clusters import Json, gpu_pool, group, pools, ray_cluster, template

A, B = "gpu.deckhouse.io/a", "gpu.deckhouse.io/b"
MIXED = {"mode": "MIG", "mig": {"layout": [{"profile": "3g.71gb", "count": 2}]}}


def pool_with(name: str, total: int) -> GPUPool:
    counted = {
        "name": f"gpu.deckhouse.io/{name}",
        "total": total,
        "used": total,
        "reserved": 0,
        "available": 0,
        "faulted": 0,
    }
    return gpu_pool(name, status={"capacity": [counted]})


POOLS = pools(pool_with("a", 8), gpu_pool("m", allocation=MIXED), gpu_pool("young"))
LARGEST = {A: 4}


def workers(name: str, limits: Json, **rest: object) -> Json:
    return group(name, template(limits), **rest)


CASES: dict[str, tuple[list[Json], str | None]] = {
    "it fits, though all cards are in use": ([workers("gpu", {A: 4}, replicas=2)], None),
    "one pod is too large for any node": (
        [workers("gpu", {A: 8})],
        f"worker group gpu asks for 8 units of {A} in one pod, and no node of the GPU pool a has more than 4",
    ),
    "the group is too large for the pool": (
        [workers("gpu", {A: 4}, replicas=3)],
        f"worker group gpu asks for 12 units of {A} in all, and the GPU pool a has 8",
    ),
    "hosts of a replica count": (
        [workers("gpu", {A: 4}, replicas=1, numOfHosts=4)],
        f"worker group gpu asks for 16 units of {A} in all, and the GPU pool a has 8",
    ),
    "bounds of the group count": ([workers("gpu", {A: 4}, replicas=9, maxReplicas=2)], None),
    "a suspended group asks for nothing": ([workers("gpu", {A: 4}, replicas=9, suspend=True)], None),
    "an empty group asks for nothing": ([workers("gpu", {A: 8}, replicas=0)], None),
    "groups together": (
        [workers("one", {A: 4}), workers("two", {A: 2}, replicas=3)],
        f"worker group one and worker group two ask for 10 units of {A} in all, and the GPU pool a has 8",
    ),
    "no pool": (
        [workers("gpu", {B: 1})],
        f"worker group gpu asks for {B}, which no GPU pool offers: kubectl get gpupools -o wide",
    ),
    "the name that resources of a pool begin with": (
        [workers("gpu", {"gpu.deckhouse.io/m": 1})],
        "worker group gpu asks for gpu.deckhouse.io/m, but the GPU pool m offers gpu.deckhouse.io/m.3g.71gb",
    ),
    "a pool that has not counted its cards": ([workers("gpu", {"gpu.deckhouse.io/young": 64})], None),
    "resources of others are not ours to judge": ([workers("gpu", {"nvidia.com/gpu": 64, "cpu": 1000})], None),
}


@pytest.mark.parametrize(("groups", "sentence"), CASES.values(), ids=CASES.keys())
def test_a_cluster_that_pools_cannot_serve_says_so(groups: list[Json], sentence: str | None) -> None:
    assert cluster_unserved(ray_cluster(*groups).spec, POOLS, lambda name: LARGEST.get(name, 0)) == sentence


def test_a_pool_that_is_being_deleted_serves_nobody() -> None:
    going = PoolResources([PoolFacts(name="a", resources=(A,), deleting=True)])
    sentence = cluster_unserved(ray_cluster(workers("gpu", {A: 1})).spec, going, lambda _: 0)
    assert sentence == f"worker group gpu asks for {A}, and the GPU pool a is being deleted"


def test_the_head_is_asked_for_too() -> None:
    spec = ray_cluster(head={"template": template({A: 5})}).spec
    sentence = cluster_unserved(spec, POOLS, lambda name: LARGEST.get(name, 0))
    assert sentence == f"the head asks for 5 units of {A} in one pod, and no node of the GPU pool a has more than 4"


@pytest.mark.parametrize(
    ("allocation", "selected", "waiting", "wanted", "served"),
    [
        pytest.param({}, 2, 2, 2, True, id="cards wait for an approval"),
        pytest.param({}, 2, 0, 2, True, id="cards were approved, and no agent has told of their units"),
        pytest.param({}, 2, 2, 3, False, id="not even with those"),
        pytest.param({"mode": "TimeSlice", "timeSlice": {"replicas": 4}}, 1, 1, 4, True, id="cards to take turns on"),
        pytest.param({"mode": "MIG", "mig": {"profile": "1g.18gb"}}, 1, 1, 7, True, id="cards to be cut"),
    ],
)
def test_cards_on_their_way_into_a_pool_may_serve(
    allocation: Json, selected: int, waiting: int, wanted: int, served: bool
) -> None:
    reasons = [{"reason": "NotApproved", "cards": waiting}] if waiting else []
    none = {"name": A, "total": 0, "used": 0, "reserved": 0, "available": 0, "faulted": 0}
    status = {"capacity": [none], "cards": {"selected": selected, "waiting": reasons}}
    spec = {"allocation": allocation} if allocation else {}
    pool = gpu_pool("a", status=status, **spec)
    cluster = ray_cluster(workers("gpu", {A: 1}, replicas=wanted))
    assert (cluster_unserved(cluster.spec, pools(pool), lambda _resource: 0) is None) is served
