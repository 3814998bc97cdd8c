"""How many workers have to start at once, and whether pools could serve a cluster."""

import pytest

from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.ray.cluster.desired import capacity, desired, start_together, wants_gang
from gpu_control_plane.ray.cluster.manifests import ClusterContext
from unit.ray.ray_clusters import Json, gpu_pool, group, pools, ray_cluster, template

RESOURCE = "gpu.deckhouse.io/training"
POOLS = pools(gpu_pool("training"))
ASKS = template({RESOURCE: 1})


@pytest.mark.parametrize(("of_group", "autoscaling", "expected"), [
    ({"replicas": 4}, False, 4),
    ({"replicas": 1}, False, 1),
    ({"replicas": 0}, False, 0),
    ({"replicas": 4, "suspend": True}, False, 0),
    ({"replicas": 4, "numOfHosts": 2}, False, 8),
    ({"replicas": 4, "minReplicas": 2}, True, 2),
    ({"replicas": 4, "minReplicas": 0}, True, 1),
    ({"replicas": 4, "minReplicas": 0, "numOfHosts": 2}, True, 2),
    ({"replicas": 4, "minReplicas": 1, "numOfHosts": 2}, True, 2),
    ({"replicas": 1, "minReplicas": 3}, True, 3),
])  # fmt: skip
def test_so_many_workers_start_at_once(of_group: Json, autoscaling: bool, expected: int) -> None:
    cluster = ray_cluster(group(template=ASKS, **of_group), enableInTreeAutoscaling=autoscaling)
    assert start_together(cluster, cluster.spec.worker_group_specs[0], POOLS) == expected


@pytest.mark.parametrize("limits", [{}, {"cpu": 4}, {"nvidia.com/gpu": 4}, {"gpu.deckhouse.io/other": 1}])
def test_workers_without_cards_of_a_pool_wait_for_nobody(limits: Json) -> None:
    cluster = ray_cluster(group(template=template(limits), replicas=4))
    assert start_together(cluster, cluster.spec.worker_group_specs[0], POOLS) == 0


@pytest.mark.parametrize(("label", "default", "expected"), [
    (None, True, True), (None, False, False), ("true", False, True), ("false", True, False), ("True", False, True),
    ("nonsense", True, True),
])  # fmt: skip
def test_a_label_says_whether_they_do(label: str | None, default: bool, expected: bool) -> None:
    labels = {} if label is None else {Label.GANG.value: label}
    assert wants_gang(ray_cluster(labels=labels), by_default=default) is expected


def test_an_invalid_cluster_is_to_have_nothing() -> None:
    cluster = ray_cluster(group(minReplicas=5, maxReplicas=2))
    found = desired(ClusterContext(cluster=cluster, gpus=POOLS), None, b"", gang=True)
    assert found.problems
    assert not found.children


def test_units_of_pools_are_counted_as_gpus() -> None:
    cluster = ray_cluster(group(template=ASKS, replicas=3), head={"template": template({"nvidia.com/gpu": 2})})
    assert desired(ClusterContext(cluster=cluster, gpus=POOLS), None, b"", gang=True).gpus == 5


def test_only_clusters_that_ask_for_a_pool_hear_of_their_capacity() -> None:
    assert capacity(ray_cluster(group()), POOLS, lambda _resource: 0) is None
    verdict = capacity(ray_cluster(group(template=ASKS)), POOLS, lambda _resource: 8)
    assert verdict is not None
    assert verdict.status
    verdict = capacity(ray_cluster(group(template=template({RESOURCE: 9}))), POOLS, lambda _resource: 8)
    assert verdict is not None
    assert not verdict.status
