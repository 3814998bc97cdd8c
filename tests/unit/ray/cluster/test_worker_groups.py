"""Which workers of a group are made and deleted."""

import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.ray.cluster import WorkerGroupSpec
from gpu_control_plane.api.ray.names import HEAD_GROUP
from gpu_control_plane.ray.cluster.worker_groups import GroupPlan, Why, plan_group
from unit.ray.cluster.pod_world import PodWorld
from unit.ray.ray_clusters import Json, group, ray_cluster


def world(**of_group: Any) -> PodWorld:
    """A cluster with one group, all of whose pods run."""
    made = PodWorld(ray_cluster(group(**of_group)))
    made.settle()
    return made


def plan(made: PodWorld, *, scales_itself: bool = False, random_delete: bool = False, **changed: object) -> GroupPlan:
    """What is planned for the group after these fields of it have changed."""
    held = msgspec.to_builtins(made.cluster.spec.worker_group_specs[0])
    spec = msgspec.convert(held | changed, WorkerGroupSpec)
    return plan_group(
        spec, made.of("workers"), scales_itself=scales_itself, random_delete=random_delete, rng=random.Random(1)
    )


@pytest.mark.parametrize("of_group", [{"replicas": 2**31 - 1}, {"replicas": 1, "numOfHosts": 2**31 - 1}])
def test_a_group_of_any_size_is_ordered_in_parts(of_group: Json) -> None:
    made = PodWorld(ray_cluster(group(**of_group)))
    made.carry_out(made.plan())
    assert len(made.of("workers")) == 500
    made.carry_out(made.plan())
    assert len(made.of("workers")) == 1000


def test_groups_without_number_are_ordered_in_parts_as_one() -> None:
    made = PodWorld(ray_cluster(*(group(f"g{index}", replicas=2**31 - 1) for index in range(50))))
    plan = made.plan()
    assert len(plan.orders) == 501
    assert plan.orders[0].group == HEAD_GROUP
    assert {order.group for order in plan.orders[1:]} == {"g0"}


def test_a_group_that_is_held_back_takes_no_room_from_the_others() -> None:
    made = PodWorld(ray_cluster(group("full", replicas=10_000), group("other", replicas=3)))
    plan = made.plan(not_before={"full": made.now + timedelta(minutes=1)})
    assert [order.group for order in plan.orders] == [HEAD_GROUP, *["other"] * 3]
    assert plan.again_at == made.now + timedelta(minutes=1)


def gone(found: GroupPlan) -> dict[str, Why]:
    return {removal.pod.name: removal.why for removal in found.removals}


@pytest.mark.parametrize(
    ("replicas", "least", "most", "suspend", "expected"),
    [
        (3, 0, 10, None, 3),
        (3, 5, 10, None, 5),
        (30, 0, 10, None, 10),
        (0, 0, 10, None, 0),
        (3, 0, 10, True, 0),
        (3, 0, 10, False, 3),
    ],
)
def test_a_group_has_its_replicas_within_its_bounds(
    replicas: int, least: int, most: int, suspend: bool | None, expected: int
) -> None:
    of_group: Json = {"replicas": replicas, "minReplicas": least, "maxReplicas": most}
    if suspend is not None:
        of_group["suspend"] = suspend
    assert len(world(**of_group).of("workers")) == expected


def test_a_suspended_group_loses_all_its_pods_even_where_ray_scales_it() -> None:
    found = plan(world(replicas=2), suspend=True, scales_itself=True)
    assert set(gone(found).values()) == {Why.SUSPENDED}
    assert len(gone(found)) == 2
    assert not found.orders


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_worker_that_has_ended_is_replaced(phase: str) -> None:
    made = world(replicas=2)
    made.change("workers-1", phase=phase)
    found = plan(made)
    assert gone(found) == {"workers-1": Why.LOST}
    assert len(found.orders) == 1


@pytest.mark.parametrize(("policy", "lost"), [("Never", True), ("Always", False), ("OnFailure", False)])
def test_a_worker_whose_ray_container_has_ended_is_lost_if_nobody_restarts_it(policy: str, lost: bool) -> None:
    made = world(replicas=1)
    pod = made.pods["workers-1"]
    made.pods["workers-1"] = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, restart_policy=policy))
    ended = {"name": "ray", "state": {"terminated": {"exitCode": 1}}}
    other = {"name": "sidecar", "state": {"running": {}}}
    made.change("workers-1", containerStatuses=[other, ended])
    assert bool(plan(made).removals) is lost


def test_workers_that_are_named_go_and_are_replaced_where_as_many_are_asked_for() -> None:
    found = plan(world(replicas=3), scaleStrategy={"workersToDelete": ["workers-2", "another-pod"]})
    assert gone(found) == {"workers-2": Why.NAMED}
    assert len(found.orders) == 1


def test_with_autoscaling_only_the_named_workers_go() -> None:
    found = plan(world(replicas=3), replicas=1, scales_itself=True, scaleStrategy={"workersToDelete": ["workers-2"]})
    assert gone(found) == {"workers-2": Why.NAMED}
    assert not found.orders


def test_with_autoscaling_surplus_workers_go_if_the_operator_is_told_so() -> None:
    assert len(plan(world(replicas=3), replicas=1, scales_itself=True, random_delete=True).removals) == 2


def test_of_too_many_workers_the_least_useful_go_first() -> None:
    made = world(replicas=5)
    made.runs("workers-2", ready=False)
    made.change("workers-4", phase="Pending", conditions=[])
    order = []
    for replicas in (4, 3, 2, 1):
        held = gone(plan(made, replicas=replicas))
        order += [name for name in held if name not in order]
    # One that does not run, one that is not ready, and then the youngest.
    assert order == ["workers-4", "workers-2", "workers-5", "workers-3"]


def test_a_worker_that_is_being_deleted_is_replaced_at_once() -> None:
    made = world(replicas=2)
    made.begins_to_go("workers-1")
    found = plan(made)
    assert not found.removals
    assert len(found.orders) == 1


def test_indices_that_are_free_are_used_again() -> None:
    made = world(replicas=3)
    made.delete("workers-2")
    assert [order.identity.index for order in plan(made, replicas=4).orders] == [1, 3]


def test_a_replica_of_several_hosts_is_made_as_a_whole() -> None:
    found = plan(PodWorld(ray_cluster(group())), replicas=2, numOfHosts=3)
    identities = [(order.identity.index, order.identity.host) for order in found.orders]
    assert identities == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    names = {order.identity.index: order.identity.name for order in found.orders}
    assert len(set(names.values())) == 2
    assert all(name.startswith("workers-") and len(name) == len("workers-") + 5 for name in names.values())


@pytest.mark.parametrize("what", ["fails", "delete", "begins_to_go"])
def test_a_replica_goes_as_a_whole_when_a_host_is_lost(what: str) -> None:
    made = world(replicas=2, numOfHosts=2)
    getattr(made, what)("workers-1")
    found = plan(made)
    assert "workers-2" in gone(found)
    assert not {"workers-3", "workers-4"} & gone(found).keys()
    assert [order.identity.index for order in found.orders] == [0, 0]


def test_naming_one_host_removes_its_replica() -> None:
    found = plan(world(replicas=2, numOfHosts=2), replicas=1, scaleStrategy={"workersToDelete": ["workers-3"]})
    assert gone(found) == {"workers-3": Why.NAMED, "workers-4": Why.NAMED}


def test_scaling_down_removes_whole_replicas() -> None:
    found = plan(world(replicas=3, numOfHosts=2), replicas=2)
    assert gone(found) == {"workers-5": Why.SURPLUS, "workers-6": Why.SURPLUS}


def test_hosts_that_were_not_made_yet_are_made_while_none_of_the_replica_has_begun() -> None:
    made = PodWorld(ray_cluster(group(replicas=1, numOfHosts=3)))
    first, *_ = plan(made).orders
    made.make(first)
    found = plan(made)
    assert not found.removals
    assert [(order.identity.name, order.identity.host) for order in found.orders] == [
        (first.identity.name, 1),
        (first.identity.name, 2),
    ]


def test_another_number_of_hosts_makes_replicas_anew() -> None:
    found = plan(world(replicas=1, numOfHosts=2), numOfHosts=3)
    assert set(gone(found).values()) == {Why.BROKEN}
    assert len(found.orders) == 3


def test_pods_that_wait_for_each_other_are_made_so() -> None:
    spec = PodWorld(ray_cluster(group())).cluster.spec.worker_group_specs[0]
    found = plan_group(spec, (), scales_itself=False, gated=True, rng=random.Random(1))
    assert [order.gated for order in found.orders] == [True]
