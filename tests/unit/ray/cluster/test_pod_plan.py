"""Which pods of a RayCluster are made and deleted, question by question."""

from datetime import timedelta

import msgspec
import pytest

from gpu_control_plane.api.ray.cluster import ClusterCondition, RayCluster, RayClusterStatus
from gpu_control_plane.api.ray.names import HEAD_GROUP, Annotation
from gpu_control_plane.kube.conditions import condition
from gpu_control_plane.ray.cluster.worker_groups import Why
from unit.ray.cluster.pod_world import NOW, PodWorld
from unit.ray.ray_clusters import Json, group, ray_cluster, template

HEAD = "headgroup-0"
ROLLING: Json = {"type": "RollingUpdate"}


def world(*groups: Json, **spec: object) -> PodWorld:
    """A cluster all of whose pods run."""
    made = PodWorld(ray_cluster(*(groups or (group(replicas=2),)), **spec))  # type: ignore[arg-type]
    made.settle()
    return made


def with_condition(cluster: RayCluster, kind: ClusterCondition, *, value: bool = True) -> RayCluster:
    held = RayClusterStatus(conditions=(condition((), kind, value, "Test", now=NOW),))
    return msgspec.structs.replace(cluster, status=held)


def gone(made: PodWorld) -> dict[str, Why]:
    return {removal.pod.name: removal.why for removal in made.plan().removals}


def test_head_and_workers_are_made_in_one_go() -> None:
    plan = PodWorld(ray_cluster(group(replicas=2))).plan()
    assert [order.group for order in plan.orders] == [HEAD_GROUP, "workers", "workers"]


def test_a_head_that_has_ended_goes_before_anything_else() -> None:
    made = world()
    made.fails(HEAD)
    made.fails("workers-1")
    assert gone(made) == {HEAD: Why.LOST}


def test_a_new_head_waits_until_the_old_one_is_gone() -> None:
    made = world()
    made.begins_to_go(HEAD)
    assert not made.plan().orders
    made.delete(HEAD)
    assert [order.group for order in made.plan().orders] == [HEAD_GROUP]


@pytest.mark.parametrize(("annotation", "provisioned", "made_anew"), [
    ("true", True, False), ("TRUE", True, False), ("true", False, True), ("false", True, True), ("", True, True),
])  # fmt: skip
def test_a_head_that_was_up_once_stays_away_if_an_annotation_says_so(
    annotation: str, provisioned: bool, made_anew: bool
) -> None:
    cluster = ray_cluster(group(replicas=2), annotations={Annotation.DISABLE_HEAD_RESTART: annotation})
    made = PodWorld(with_condition(cluster, ClusterCondition.PROVISIONED, value=provisioned))
    assert bool(made.plan().orders) is made_anew


def test_of_two_heads_the_better_one_stays() -> None:
    made = world()
    (order,) = PodWorld(ray_cluster()).plan().orders
    second = made.make(order)
    assert gone(made) == {second.name: Why.DOUBLE_HEAD}
    made.runs(HEAD, ready=False)
    made.runs(second.name)
    assert gone(made) == {HEAD: Why.DOUBLE_HEAD}


def test_a_suspended_cluster_loses_its_pods_and_gets_none() -> None:
    made = world()
    made.with_spec(ray_cluster(group(replicas=2), suspend=True))
    plan = made.plan()
    assert len(plan.removals) == 3
    assert not plan.orders
    made.carry_out(plan)
    assert made.settle() == 0


def test_a_suspension_that_has_begun_is_carried_to_its_end() -> None:
    made = world()
    made.cluster = with_condition(made.cluster, ClusterCondition.SUSPENDING)
    assert len(made.plan().removals) == 3


@pytest.mark.parametrize("suspend", [False, None])
def test_a_cluster_that_is_not_to_be_suspended_any_more_gets_its_pods(suspend: bool | None) -> None:
    given: Json = {} if suspend is None else {"suspend": suspend}
    cluster = ray_cluster(group(), **given)
    assert len(PodWorld(with_condition(cluster, ClusterCondition.SUSPENDED)).plan().orders) == 2


def test_pods_of_a_group_that_is_gone_are_deleted() -> None:
    made = world(group("a"), group("b"))
    made.with_spec(ray_cluster(group("b")))
    assert gone(made) == {"a-1": Why.GROUP_GONE}


def test_what_is_held_back_is_not_made_before_its_time() -> None:
    made = PodWorld(ray_cluster(group("a"), group("b")))
    later = made.now + timedelta(seconds=30)
    plan = made.plan(not_before={"a": later})
    assert [order.group for order in plan.orders] == [HEAD_GROUP, "b"]
    assert plan.again_at == later
    assert len(made.plan(not_before={"a": later}, now=later).orders) == 3


def test_workers_wait_for_a_head_that_is_held_back() -> None:
    made = PodWorld(ray_cluster(group()))
    later = made.now + timedelta(seconds=30)
    plan = made.plan(not_before={HEAD_GROUP: later})
    assert (plan.orders, plan.again_at) == ((), later)


def test_what_cannot_be_deleted_is_not_tried_before_its_time() -> None:
    made = world()
    made.fails("workers-1")
    later = made.now + timedelta(seconds=30)
    plan = made.plan(undeletable_until={"workers": later})
    assert (plan.removals, plan.again_at) == ((), later)


def test_without_a_strategy_a_change_of_the_spec_touches_no_pod() -> None:
    made = world()
    made.with_spec(
        ray_cluster(group(replicas=2, template=template(image="new")), head={"template": template({"cpu": 9})})
    )
    assert made.settle() == 0


def test_recreate_makes_everything_anew_at_once() -> None:
    made = world(upgradeStrategy={"type": "Recreate"})
    made.with_spec(ray_cluster(group(replicas=2, template=template(image="new")), upgradeStrategy={"type": "Recreate"}))
    plan = made.plan()
    assert {removal.why for removal in plan.removals} == {Why.OUTDATED}
    assert len(plan.removals) == 3
    assert not plan.orders


def test_recreate_also_sees_a_change_while_there_is_no_head() -> None:
    made = world(upgradeStrategy={"type": "Recreate"})
    made.delete(HEAD)
    made.with_spec(ray_cluster(group(replicas=2, template=template(image="new")), upgradeStrategy={"type": "Recreate"}))
    assert set(gone(made)) == {"workers-1", "workers-2"}


def test_recreate_takes_over_pods_of_another_release_as_they_are() -> None:
    made = world(upgradeStrategy={"type": "Recreate"})
    head = made.pods[HEAD]
    theirs = {Annotation.RECREATE_HASH.value: "theirs", Annotation.KUBERAY_VERSION.value: "v1.5.0"}
    metadata = msgspec.structs.replace(head.metadata, annotations=head.metadata.annotations | theirs)
    made.pods[HEAD] = msgspec.structs.replace(head, metadata=metadata)
    plan = made.plan()
    assert plan.refresh is not None
    assert not plan.removals


@pytest.mark.parametrize(("most", "at_once"), [(None, 1), (1, 1), (2, 2), (9, 4)])
def test_a_rolling_change_replaces_so_many_workers_at_once(most: int | None, at_once: int) -> None:
    strategy = ROLLING if most is None else {**ROLLING, "maxUnavailable": most}
    made = world(group(replicas=4), upgradeStrategy=strategy)
    made.with_spec(ray_cluster(group(replicas=4, template=template(image="new")), upgradeStrategy=strategy))
    replaced = 0
    while removals := made.plan().removals:
        assert len(removals) == min(at_once, 4 - replaced)
        replaced += len(removals)
        made.carry_out(made.plan())
        made.carry_out(made.plan())
        assert not made.plan().removals  # It waits for those that it has made.
        made.all_run()
    assert replaced == 4
    assert HEAD in made.pods


def test_a_rolling_change_waits_for_workers_that_are_not_ready_for_another_reason() -> None:
    made = world(group(replicas=3), upgradeStrategy=ROLLING)
    made.with_spec(ray_cluster(group(replicas=3, template=template(image="new")), upgradeStrategy=ROLLING))
    made.runs("workers-2", ready=False)
    assert gone(made) == {"workers-2": Why.OUTDATED}
    made.carry_out(made.plan())
    assert not made.plan().removals


def test_workers_that_have_never_run_are_replaced_at_once() -> None:
    made = PodWorld(ray_cluster(group(replicas=3), upgradeStrategy=ROLLING))
    made.carry_out(made.plan())
    made.with_spec(ray_cluster(group(replicas=3, template=template(image="new")), upgradeStrategy=ROLLING))
    assert len(made.plan().removals) == 3


def test_a_rolling_change_ends_with_the_head_and_only_if_it_has_changed() -> None:
    made = world(group(replicas=2), upgradeStrategy=ROLLING)
    head = {"template": template({"cpu": 9})}
    made.with_spec(ray_cluster(group(replicas=2, template=template(image="new")), head=head, upgradeStrategy=ROLLING))
    order = []
    while removals := made.plan().removals:
        order += [removal.pod.name for removal in removals]
        made.carry_out(made.plan())
        made.carry_out(made.plan())
        made.all_run()
    assert order == ["workers-1", "workers-2", HEAD]


def test_groups_roll_one_after_the_other() -> None:
    made = world(group("a"), group("b"), upgradeStrategy=ROLLING)
    new = template(image="new")
    made.with_spec(ray_cluster(group("a", template=new), group("b", template=new), upgradeStrategy=ROLLING))
    assert set(gone(made)) == {"a-1"}


def test_a_worker_that_finds_no_room_does_not_keep_the_head_from_its_change() -> None:
    made = world(group(replicas=2), upgradeStrategy=ROLLING)
    made.with_spec(ray_cluster(group(replicas=3), head={"template": template({"cpu": 9})}, upgradeStrategy=ROLLING))
    made.carry_out(made.plan())
    assert not gone(made)
    made.change("workers-3", conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}])
    assert HEAD in gone(made)


def test_a_head_that_never_comes_up_is_changed_before_the_workers_that_wait_for_it() -> None:
    made = PodWorld(ray_cluster(group(replicas=2), head={"template": template(image="typo")}, upgradeStrategy=ROLLING))
    made.carry_out(made.plan())
    made.with_spec(ray_cluster(group(replicas=2), head={"template": template(image="right")}, upgradeStrategy=ROLLING))
    assert gone(made) == {HEAD: Why.OUTDATED}
    made.runs(HEAD, ready=False)  # It starts, and starts again.
    assert gone(made) == {HEAD: Why.OUTDATED}


def test_a_head_that_is_not_ready_for_a_moment_still_goes_last() -> None:
    made = world(group(replicas=2), upgradeStrategy=ROLLING)
    new = group(replicas=2, template=template(image="new"))
    made.with_spec(ray_cluster(new, head={"template": template({"cpu": 9})}, upgradeStrategy=ROLLING))
    made.runs(HEAD, ready=False)
    assert HEAD not in gone(made)


def test_rolling_replaces_replicas_of_several_hosts_as_a_whole() -> None:
    made = world(group(replicas=2, numOfHosts=2), upgradeStrategy=ROLLING)
    new = group(replicas=2, numOfHosts=2, template=template(image="new"))
    made.with_spec(ray_cluster(new, upgradeStrategy=ROLLING))
    assert set(gone(made)) == {"workers-1", "workers-2"}
