"""How many pods a RayCluster asks for, and what they need together."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.kube.quantities import parse_quantity
from gpu_control_plane.ray.demand import (
    desired_amounts,
    group_pods,
    least_amounts,
    least_group_pods,
    most_group_pods,
    pod_amounts,
    quantity_text,
    worker_pods,
)
from unit.ray.ray_clusters import Json, group, ray_cluster, template

GIB = Decimal(1024**3)


@pytest.mark.parametrize(
    ("fields", "asked", "least", "most"),
    [
        ({"replicas": 3, "maxReplicas": 9}, 3, 0, 9),
        ({"replicas": 1, "minReplicas": 2, "maxReplicas": 9}, 2, 2, 9),
        ({"replicas": 7, "maxReplicas": 4}, 4, 0, 4),
        ({"replicas": 3, "minReplicas": 1, "maxReplicas": 9, "numOfHosts": 4}, 12, 4, 36),
        ({"replicas": 3, "minReplicas": 1, "maxReplicas": 9, "suspend": True}, 0, 0, 0),
        ({"replicas": None, "minReplicas": None, "maxReplicas": None}, 0, 0, 2**31 - 1),
        ({"replicas": 1, "numOfHosts": 2}, 2, 0, 2**31 - 1),
    ],
)
def test_a_group_has_so_many_pods(fields: Json, asked: int, least: int, most: int) -> None:
    (held,) = ray_cluster({**group(), **fields}).spec.worker_group_specs
    assert (group_pods(held), least_group_pods(held), most_group_pods(held)) == (asked, least, most)


def test_a_pod_asks_for_requests_and_for_limits_where_there_are_none() -> None:
    held = template({"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": 1}, {"cpu": "500m"})
    held["spec"]["containers"].append({"name": "side", "resources": {"requests": {"cpu": "250m", "x": "what"}}})
    asked = pod_amounts(held["spec"])
    assert asked == {"cpu": Decimal("0.75"), "memory": GIB, "nvidia.com/gpu": 1, "x": 0}


def test_a_cluster_asks_for_its_head_and_all_groups() -> None:
    spec = ray_cluster(
        group("a", template({"cpu": 2}), replicas=3, minReplicas=1),
        group("b", template({"cpu": 1, "nvidia.com/gpu": 1}), replicas=2, numOfHosts=2),
        head={"template": template({"cpu": "1500m"})},
    ).spec
    assert worker_pods(spec) == 7
    assert desired_amounts(spec) == {"cpu": Decimal("11.5"), "nvidia.com/gpu": 4}
    assert least_amounts(spec) == {"cpu": Decimal("3.5"), "nvidia.com/gpu": 0}


@given(st.decimals(0, 10**15, places=6))
def test_an_amount_is_written_as_a_quantity_that_is_no_less(amount: Decimal) -> None:
    written = parse_quantity(quantity_text(amount))
    assert amount <= written < amount + Decimal("0.001")
