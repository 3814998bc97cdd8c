"""What is filled in for Ray's autoscaler, whose it is, and that nothing is made anew for it."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gpu_control_plane.admission.ray_gpus import fill_gpus
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube.admission import allow
from gpu_control_plane.ray.cluster.manifests import recreate_hash, spec_hash, template_hash
from gpu_control_plane.ray.service.desired_cluster import SpecFingerprint, fingerprint_when_taken_over
from gpu_control_plane.rules.ray.cluster import cluster_problems
from gpu_control_plane.rules.ray.filled_gpus import as_written, filled_gpus
from gpu_control_plane.rules.ray.gpus import PoolResources
from unit.ray.ray_clusters import Json, gpu_pool, group, pools, ray_cluster, template

POOLS = pools(
    gpu_pool("a"),
    gpu_pool("cards", resource={"name": "gpu.deckhouse.io/training-gpu"}),
    gpu_pool("slices", allocation={"mode": "TimeSlice", "timeSlice": {"replicas": 4}}),
)
TWO = template({"gpu.deckhouse.io/a": 2})
FOUR = template({"gpu.deckhouse.io/a": 4})
FILLED = Annotation.FILLED_GPUS.value


def scaled(*groups: Json, **rest: Any) -> RayCluster:
    return ray_cluster(*groups, **{"enableInTreeAutoscaling": True, **rest})


def document_of(cluster: RayCluster) -> Json:
    """The cluster as the API server sends it."""
    document: Json = msgspec.json.decode(msgspec.json.encode(cluster))
    return document


def filled(cluster: RayCluster, gpus: PoolResources = POOLS) -> RayCluster:
    """The cluster as it is stored."""
    response = fill_gpus(cluster, document_of(cluster), gpus)
    assert response.allowed
    return cluster if response.document is None else msgspec.convert(response.document, RayCluster)


def params(cluster: RayCluster) -> list[dict[str, str]]:
    """Of the head and of each group."""
    spec = cluster.spec
    return [dict(one.ray_start_params) for one in (spec.head_group_spec, *spec.worker_group_specs)]


def edited(cluster: RayCluster, **changes: Any) -> RayCluster:
    """The cluster with other fields in its first worker group."""
    first, *others = cluster.spec.worker_group_specs
    body = {**msgspec.to_builtins(first), **changes}
    groups = (msgspec.convert(body, type(first)), *others)
    return replace(cluster, spec=replace(cluster.spec, worker_group_specs=groups))


CREATED: dict[str, tuple[RayCluster, list[dict[str, str]]]] = {
    "cards of a pool": (scaled(group(template=TWO)), [{}, {"num-gpus": "2"}]),
    "beside other parameters": (
        scaled(group(template=TWO, rayStartParams={"num-cpus": "1"})),
        [{}, {"num-cpus": "1", "num-gpus": "2"}],
    ),
    "each group its own": (
        scaled(group("one", TWO), group("two", FOUR), group("three")),
        [{}, {"num-gpus": "2"}, {"num-gpus": "4"}, {}],
    ),
    "the head": (scaled(head={"template": TWO}), [{"num-gpus": "2"}]),
    "MIG instances": (scaled(group(template=template({"nvidia.com/mig-1g.10gb": 3}))), [{}, {"num-gpus": "3"}]),
    "several turns, which may be of one card": (
        scaled(group(template=template({"gpu.deckhouse.io/slices": 3}))),
        [{}, {"num-gpus": "1"}],
    ),
    "what the autoscaler sees": (scaled(group(template=template({"nvidia.com/gpu": 2}))), [{}, {}]),
    "a name that ends in gpu": (scaled(group(template=template({"gpu.deckhouse.io/training-gpu": 2}))), [{}, {}]),
    "what no pool offers": (scaled(group(template=template({"gpu.deckhouse.io/nobody": 2}))), [{}, {}]),
    "no autoscaler": (ray_cluster(group(template=TWO)), [{}, {}]),
    "the user's own value": (
        scaled(group(template=TWO, rayStartParams={"num-gpus": "1"})),
        [{}, {"num-gpus": "1"}],
    ),
    "the field resources, which excludes it": (scaled(group(template=TWO, resources={"custom": "1"})), [{}, {}]),
    "claims, which are not known here": (
        scaled(
            group(
                template=template(
                    resources={"limits": {"gpu.deckhouse.io/a": 2}, "claims": [{"name": "held"}]},
                )
            )
        ),
        [{}, {}],
    ),
    "another cluster runs it": (scaled(group(template=TWO), managedBy="kueue.x-k8s.io/multikueue"), [{}, {}]),
    "a template that cannot be read": (scaled(group(template={"spec": {"containers": "none"}})), [{}, {}]),
    "no container": (scaled(group(template={"spec": {"containers": []}})), [{}, {}]),
}


@pytest.mark.parametrize(("cluster", "expected"), CREATED.values(), ids=CREATED.keys())
def test_what_the_autoscaler_would_not_see_is_filled_in(cluster: RayCluster, expected: list[dict[str, str]]) -> None:
    assert params(filled(cluster)) == expected


@pytest.mark.parametrize("cluster", [case for case, _ in CREATED.values()], ids=CREATED.keys())
def test_a_second_review_changes_nothing(cluster: RayCluster) -> None:
    once = filled(cluster)
    assert filled(once) == once


@pytest.mark.parametrize("cluster", [case for case, _ in CREATED.values()], ids=CREATED.keys())
def test_nothing_is_made_anew_for_what_was_filled_in(cluster: RayCluster) -> None:
    after = filled(cluster)
    assert as_written(after) == cluster.spec
    assert template_hash(after) == template_hash(cluster)
    for before, held in zip(cluster.spec.worker_group_specs, after.spec.worker_group_specs, strict=True):
        assert template_hash(after, held) == template_hash(cluster, before)
    assert recreate_hash(as_written(after)) == recreate_hash(cluster.spec)
    assert spec_hash(as_written(after)) == spec_hash(cluster.spec)


def test_what_was_filled_in_is_nothing_that_validation_refuses() -> None:
    cluster = scaled(group("one", TWO), group("two", TWO, resources={"custom": "1"}))
    assert cluster_problems(filled(cluster)) == cluster_problems(cluster)


def test_only_what_differs_is_sent() -> None:
    cluster = ray_cluster(group(template=TWO))
    assert fill_gpus(cluster, document_of(cluster), POOLS) == allow()


STORED = filled(scaled(group(template=TWO)))


@pytest.mark.parametrize(
    ("change", "expected", "ours"),
    [
        ({"replicas": 3}, {"num-gpus": "2"}, {"workers": "2"}),
        ({"template": FOUR}, {"num-gpus": "4"}, {"workers": "4"}),
        ({"template": FOUR, "rayStartParams": {}}, {"num-gpus": "4"}, {"workers": "4"}),
        ({"template": template({"cpu": 1})}, {}, {}),
        ({"template": template({"nvidia.com/gpu": 2})}, {}, {}),
        ({"rayStartParams": {"num-gpus": "1"}}, {"num-gpus": "1"}, {}),
        ({"template": FOUR, "rayStartParams": {"num-gpus": "1"}}, {"num-gpus": "1"}, {}),
        ({"resources": {"GPU": "1"}}, {}, {}),
        ({"groupName": "other"}, {"num-gpus": "2"}, {}),
    ],
    ids=["scaled", "more cards", "more cards, sent whole", "none", "seen", "own", "own, more", "field", "renamed"],
)
def test_an_update_works_our_value_out_anew_and_leaves_the_users(change: Json, expected: Json, ours: Json) -> None:
    after = filled(edited(STORED, **change))
    assert params(after)[1] == expected
    assert filled_gpus(after) == ours
    assert (FILLED in after.metadata.annotations) is bool(ours)


def test_a_value_of_the_user_stays_whatever_the_limits_become() -> None:
    own = filled(scaled(group(template=TWO, rayStartParams={"num-gpus": "2"})))
    assert params(filled(edited(own, template=FOUR)))[1] == {"num-gpus": "2"}


def test_without_autoscaling_it_is_taken_back() -> None:
    after = filled(replace(STORED, spec=replace(STORED.spec, enable_in_tree_autoscaling=False)))
    assert params(after) == [{}, {}]
    assert FILLED not in after.metadata.annotations


def test_a_change_of_the_users_own_value_is_a_change_of_the_pods() -> None:
    own = edited(STORED, rayStartParams={"num-gpus": "1"})
    (before,), (after,) = STORED.spec.worker_group_specs, own.spec.worker_group_specs
    assert template_hash(own, after) != template_hash(STORED, before)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"workers": 2}'])
def test_an_annotation_that_cannot_be_read_says_nothing(text: str) -> None:
    odd = scaled(group(template=TWO), annotations={FILLED: text})
    after = filled(odd)
    assert as_written(odd) == odd.spec
    assert filled_gpus(after) == {"workers": "2"}


def test_a_service_that_takes_a_cluster_over_takes_it_for_made_from_its_spec() -> None:
    """The hash of a RayService is of its own spec, in which nothing was filled in."""
    config = msgspec.to_builtins(scaled(group(template=TWO)).spec)
    service = msgspec.convert({"metadata": {"name": "s"}, "spec": {"rayClusterConfig": config}}, RayService)
    assert fingerprint_when_taken_over(STORED, service, newest=False) == SpecFingerprint.of(
        service.spec.ray_cluster_config
    )
