"""What Ray's autoscaler, which reads the RayCluster by itself, does not see of its pods is told, with what to write."""

import pytest

from gpu_control_plane.ray.cluster.manifests import ClusterContext, start_param_problems
from gpu_control_plane.rules.ray.autoscaler_view import gpus_unseen
from unit.ray.ray_clusters import Json, gpu_pool, group, pools, ray_cluster, template

POOLS = pools(
    gpu_pool("a"),
    gpu_pool("b", resource={"name": "gpu.deckhouse.io/training-gpu"}),
    gpu_pool("slices", allocation={"mode": "TimeSlice", "timeSlice": {"replicas": 4}}),
)
GROUPS: dict[str, tuple[Json, int | None]] = {
    "a pool": ({"template": template({"gpu.deckhouse.io/a": 2})}, 2),
    "a pool with a name that ends in gpu": ({"template": template({"gpu.deckhouse.io/training-gpu": 2})}, None),
    "two pools, of which it sees one": (
        {"template": template({"gpu.deckhouse.io/a": 1, "gpu.deckhouse.io/training-gpu": 2})},
        3,
    ),
    "whole cards": ({"template": template({"nvidia.com/gpu": 2})}, None),
    "requests alone, which give no GPU": ({"template": template(requests={"nvidia.com/gpu": 2})}, 0),
    "MIG instances": ({"template": template({"nvidia.com/mig-1g.10gb": 2})}, 2),
    "no GPU": ({"template": template({"cpu": 2})}, None),
    "the user says so in a parameter": (
        {"template": template({"gpu.deckhouse.io/a": 2}), "rayStartParams": {"num-gpus": "1"}},
        None,
    ),
    "the user says so in the field": (
        {"template": template({"gpu.deckhouse.io/a": 2}), "resources": {"GPU": "1"}},
        None,
    ),
}


@pytest.mark.parametrize(("held", "gpus"), GROUPS.values(), ids=GROUPS.keys())
def test_gpus_that_the_autoscaler_does_not_see(held: Json, gpus: int | None) -> None:
    cluster = ray_cluster(group(**held))
    assert gpus_unseen(cluster.spec.worker_group_specs[0], POOLS) == gpus


def test_it_is_said_where_there_is_an_autoscaler() -> None:
    held = group("gpu", template({"cpu": 1, "gpu.deckhouse.io/a": 2}))
    head = {"template": template({"cpu": 1})}
    alone = ClusterContext(cluster=ray_cluster(held, head=head), gpus=POOLS)
    scaled = ClusterContext(cluster=ray_cluster(held, head=head, enableInTreeAutoscaling=True), gpus=POOLS)
    assert start_param_problems(alone) == []
    (problem,) = start_param_problems(scaled)
    assert problem.path == "spec.workerGroupSpecs[0].rayStartParams"
    assert problem.message == (
        "Ray's autoscaler does not see that a worker of gpu has 2 GPUs, since it reads names that end in gpu alone: "
        'add num-gpus: "2" to its rayStartParams'
    )


def test_where_resources_are_given_the_gpus_are_to_be_given_with_them() -> None:
    held = group("gpu", template({"cpu": 1, "gpu.deckhouse.io/a": 2}), resources={"custom": "1"})
    head = {"template": template({"cpu": 1})}
    scaled = ClusterContext(cluster=ray_cluster(held, head=head, enableInTreeAutoscaling=True), gpus=POOLS)
    (problem,) = start_param_problems(scaled)
    assert problem.message.endswith('add GPU: "2" to its resources')


@pytest.mark.parametrize(
    ("turns", "params", "told"),
    [(1, {}, False), (2, {}, True), (2, {"num-gpus": "2"}, False)],
)
def test_several_turns_of_one_container_may_be_of_one_card(turns: int, params: Json, *, told: bool) -> None:
    held = group("gpu", template({"gpu.deckhouse.io/slices": turns}), rayStartParams=params)
    problems = start_param_problems(ClusterContext(cluster=ray_cluster(held), gpus=POOLS))
    sentence = (
        "2 replicas of pool slices may all be of one card, so Ray is told of 1 GPU: "
        "ask for 1 in each pod, and for more pods, or say in num-gpus how many cards there are"
    )
    assert [problem.message for problem in problems] == ([sentence] if told else [])


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ({"template": template({"memory": "1Gi"})}, True),
        ({"template": template(requests={"cpu": 1})}, False),
        ({"rayStartParams": {"num-cpus": "0"}}, False),
        ({"resources": {"CPU": "1"}}, False),
    ],
)
def test_an_autoscaler_that_finds_no_cpus_ends(head: Json, *, said: bool) -> None:
    scaled = ClusterContext(cluster=ray_cluster(head=head, enableInTreeAutoscaling=True))
    assert [problem.path for problem in start_param_problems(scaled)] == (
        ["spec.headGroupSpec.rayStartParams"] if said else []
    )
