"""What the decisions about RayServices are, situation by situation."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.api.ray.service import ServiceCondition
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.service.desired_cluster import Match, SpecFingerprint, match
from unit.ray.service.world import NO_POOL, POOL, World, group, of_before, running, service_of, situation

ONE = {POOL: 1}


@pytest.mark.parametrize(
    ("groups", "image", "found"),
    [
        ([group(replicas=2)], "ray:1", Match.SAME),
        ([group(replicas=5, minReplicas=1, maxReplicas=9)], "ray:1", Match.SAME),
        ([group(replicas=2), group("more")], "ray:1", Match.GROWN),
        ([group("more"), group(replicas=2)], "ray:1", Match.OTHER),
        ([], "ray:1", Match.OTHER),
        ([group(replicas=2)], "ray:2", Match.OTHER),
        ([group(replicas=2, gpus=2)], "ray:1", Match.OTHER),
    ],
)
def test_a_change_is_told_from_none(groups: list[dict[str, Any]], image: str, found: Match) -> None:
    made_from = SpecFingerprint.of(service_of(group(replicas=2)).spec.ray_cluster_config)
    assert match(made_from, service_of(*groups, image=image).spec.ray_cluster_config) is found


def test_replicas_follow_the_service_in_place() -> None:
    world = running(group(replicas=1))
    before = world.active
    world.change_cluster(group(replicas=3), group("more", replicas=2))
    world.settle()
    assert world.active == before
    held = world.clusters[before].spec.worker_group_specs
    assert [(each.group_name, each.replicas) for each in held] == [("workers", 3), ("more", 2)]


def test_replicas_that_the_autoscaler_decided_on_stay() -> None:
    world = running(group(replicas=1, maxReplicas=5), cluster={"enableInTreeAutoscaling": True})
    world.change_cluster(group(replicas=1, maxReplicas=4), enableInTreeAutoscaling=True)
    world.settle()
    held = world.clusters[world.active].spec.worker_group_specs[0]
    assert (held.replicas, held.max_replicas) == (2, 4)


@pytest.mark.parametrize("zero_downtime", [True, False])
def test_without_upgrades_a_change_is_told_and_not_carried_out(zero_downtime: bool) -> None:
    world = running(upgradeStrategy={"type": "None"} if zero_downtime else None)
    world.options = RayOptions(zero_downtime=zero_downtime)
    before = world.active
    world.change_cluster(group(image="ray:2"), image="ray:2")
    world.settle()
    assert list(world.clusters) == [before]
    held = find(world.service.status.conditions, ServiceCondition.UP_TO_DATE)
    assert held is not None
    assert (held.status, held.reason) == ("False", "ChangeNotCarriedOut")
    assert world.events.count("ChangeNotCarriedOut") == 1
    assert world.ready()


@pytest.mark.parametrize("seen", [True, False])
def test_clusters_of_kuberay_are_taken_over_without_a_second_one(seen: bool) -> None:
    """Its hashes are not ours. Only a spec that it had not seen yet is carried out."""
    world = running()
    before = world.active
    held = world.clusters[before]
    theirs = {Annotation.SPEC_HASH.value: "abc", Annotation.KUBERAY_VERSION.value: "v1.4.0"}
    left = {Annotation.APPLIED_SCALE.value, Annotation.SERVE_CONFIG.value}
    kept = {key: value for key, value in held.metadata.annotations.items() if key not in left}
    world.clusters[before] = replace(held, metadata=replace(held.metadata, annotations={**kept, **theirs}))
    if not seen:
        world.change_cluster(group(image="ray:2"), image="ray:2")
    world.settle()
    assert (world.active == before) is seen
    annotations = world.clusters[world.active].metadata.annotations
    assert annotations[Annotation.KUBERAY_VERSION.value] == RayOptions().version
    assert "TookOverRayCluster" in world.action_events


@pytest.mark.parametrize("version", ["v1.4.0", "gpu-control-plane-0.0.1"])
@pytest.mark.parametrize("crash_after", range(5))
def test_a_change_at_the_time_of_a_take_over_is_carried_out_whenever_the_operator_dies(
    version: str, crash_after: int
) -> None:
    world = running()
    before = world.active
    of_before(world, version)
    world.change_cluster(group(image="ray:2"), image="ray:2")
    world.reconcile(crash_after=crash_after)
    world.reconcile(crash_after=crash_after)
    world.settle()
    assert world.active != before
    assert world.clusters[world.active].spec.head_group_spec == world.service.spec.ray_cluster_config.head_group_spec


def test_a_change_that_was_not_carried_out_is_not_taken_for_one_that_was_by_another_release() -> None:
    world = running(upgradeStrategy={"type": "None"})
    world.change_cluster(group(image="ray:2"), image="ray:2")
    world.settle()
    of_before(world, "gpu-control-plane-0.0.1")
    world.settle()
    assert situation(world, ServiceCondition.UP_TO_DATE) == ("False", "ChangeNotCarriedOut")


def test_numbers_of_workers_that_change_while_the_operator_is_replaced_are_followed() -> None:
    world = running(group(replicas=1))
    before = world.active
    of_before(world, "gpu-control-plane-0.0.1")
    world.change_cluster(group(replicas=3))
    world.settle()
    assert world.active == before
    assert [each.replicas for each in world.clusters[before].spec.worker_group_specs] == [3]


@pytest.mark.parametrize("steps", range(0, 16, 3))
def test_a_handover_goes_on_under_another_release(steps: int) -> None:
    scaled = {"enableInTreeAutoscaling": True}
    world = World(service_of(group(replicas=2, maxReplicas=9), cluster=scaled), cards=2)
    world.settle()
    world.change_cluster(group(replicas=2, maxReplicas=9, image="ray:2"), image="ray:2", **scaled)
    for _ in range(steps):
        world.reconcile()
        world.cluster_controller()
        world.kubelet()
    of_before(world, "gpu-control-plane-0.0.1")
    world.settle(150, step=timedelta(seconds=90))
    (left,) = world.clusters.values()
    assert left.spec.head_group_spec == world.service.spec.ray_cluster_config.head_group_spec
    assert left.spec.worker_group_specs[0].max_replicas == 9


def test_a_cluster_of_before_is_taken_back_while_it_is_still_there() -> None:
    world = running()
    first = world.active
    world.change_cluster(group(image="ray:2"), image="ray:2")
    for _ in range(12):
        world.reconcile()
        world.cluster_controller()
        world.kubelet()
    assert world.active != first
    assert first in world.clusters
    world.change_cluster(group())
    world.settle()
    assert world.active == first


@pytest.mark.parametrize(("together", "taken"), [(False, 2), (True, 2), (True, 1)])
def test_an_upgrade_whose_cards_are_taken_meanwhile_goes_on_worker_by_worker(together: bool, taken: int) -> None:
    world = running(group(replicas=2))
    world.cards, world.start_together = 4, together
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2")
    world.reconcile()
    assert not world.budget()
    world.others = taken
    world.settle()
    assert "UpgradeByHandover" in world.action_events
    assert "UpgradeWithGap" not in world.action_events
    assert world.ready()
    assert not world.pending
    assert list(world.clusters) == [world.active]


@pytest.mark.parametrize(("workers", "free", "least"), [(8, 0, 4), (5, 0, 2), (4, 2, 3), (3, 1, 2), (2, 0, 1)])
def test_requests_go_over_when_the_new_cluster_has_as_many_workers(workers: int, free: int, least: int) -> None:
    world = World(service_of(group(replicas=workers)), cards=workers + free)
    world.settle()
    world.change_cluster(group(replicas=workers, image="ray:2"), image="ray:2")
    fewest = workers
    for _ in range(200):
        world.reconcile()
        world.cluster_controller()
        world.kubelet()
        world.now += timedelta(seconds=30)
        fewest = min(fewest, len(world.workers(world.clusters[world.backend], "workers")))
    assert world.ready()
    assert not world.pending
    assert fewest == least


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_applications_that_fail_never_cost_the_last_worker_that_answers(workers: int) -> None:
    world = World(service_of(group(replicas=workers)), cards=workers)
    world.settle()
    before = world.active
    world.applications_fail = {"ray:2"}
    world.change_cluster(group(replicas=workers, image="ray:2"), image="ray:2")
    for _ in range(200):
        world.reconcile()
        world.cluster_controller()
        world.kubelet()
        world.now += timedelta(minutes=5)
    assert (world.active, world.backend) == (before, before)
    assert world.can_serve(before)
    assert "DEPLOY_FAILED" in "".join(world.why())
    world.change_cluster(group(replicas=workers))
    world.settle(150, step=timedelta(seconds=90))
    assert world.ready()
    assert (world.active, len(world.workers(world.clusters[before], "workers"))) == (before, workers)


@pytest.mark.parametrize("old_answers", [True, False])
@pytest.mark.parametrize("then", ["ray:1", "ray:3"])
def test_a_cluster_that_has_requests_is_not_dropped_by_another_change(then: str, old_answers: bool) -> None:
    world, old = promoted_but_for_the_status()
    new = world.backend
    if not old_answers:
        for pod in [pod for pod in world.pods.values() if pod.name.startswith(old)]:
            world.delete_pod(pod.name)
        world.kubelet()
    world.change_cluster(group(image=then), image=then)
    for _ in range(3):
        world.reconcile()
        assert new in world.clusters
        assert world.can_serve(world.backend)
    world.settle()
    assert world.ready()
    assert (world.active == old) is (then == "ray:1")
    assert list(world.clusters) == [world.active]


def test_a_cluster_that_has_requests_is_not_dropped_when_the_old_one_is_gone() -> None:
    world, old = promoted_but_for_the_status()
    new = world.backend
    world.delete(world.clusters[old])
    world.change_cluster(group(image="ray:3"), image="ray:3")
    world.reconcile()
    assert world.backend == new
    assert world.can_serve(new)
    world.settle()
    assert world.ready()


def promoted_but_for_the_status() -> tuple[World, str]:
    """Requests have just gone over to the second cluster when the operator dies; and the first one's name."""
    world = running()
    old = world.active
    world.change_cluster(group(image="ray:2"), image="ray:2")
    while world.backend == old:
        world.cluster_controller()
        world.kubelet()
        world.reconcile(crash_after=2)
    assert world.active == old
    return world, old


@pytest.mark.parametrize("free", [0, 1, 20])
def test_a_used_up_quota_is_handed_over_as_a_full_pool_is(free: int) -> None:
    world = World(service_of(group(replicas=4)), cards=4 + free)
    world.quota = 4
    world.settle()
    world.change_cluster(group(replicas=4, image="ray:2"), image="ray:2")
    fewest = 4
    for _ in range(200):
        world.reconcile()
        world.cluster_controller()
        world.kubelet()
        world.now += timedelta(seconds=20)
        fewest = min(fewest, len(world.workers(world.clusters[world.backend], "workers")))
    assert world.ready()
    assert not world.pending
    assert list(world.clusters) == [world.active]
    assert fewest == 2


def test_an_upgrade_that_becomes_a_handover_with_a_gap_says_so() -> None:
    world = World(service_of(group(replicas=1)), cards=9)
    world.quota = 1
    world.settle()
    world.change_cluster(group(replicas=1, image="ray:2"), image="ray:2")
    world.settle()
    assert "UpgradeWithGap" in world.action_events
    assert world.ready()
    assert not world.pending


def test_a_service_without_a_configuration_says_what_it_lacks() -> None:
    world = World(service_of(group(), config=""))
    world.settle(8)
    assert "spec.serveConfigV2 is empty" in "".join(world.why())


def test_a_handover_can_be_taken_back_at_every_step() -> None:
    for steps in range(40):
        world = World(service_of(group(replicas=3)), cards=3)
        world.settle()
        first = world.active
        world.change_cluster(group(replicas=3, image="ray:2"), image="ray:2")
        for _ in range(steps):
            world.reconcile()
            world.cluster_controller()
            world.kubelet()
        promoted = world.active != first
        world.change_cluster(group(replicas=3))
        world.settle(150, step=timedelta(seconds=90))
        assert world.ready(), steps
        assert promoted or world.active == first, steps
        assert [each.replicas for each in world.clusters[world.active].spec.worker_group_specs] == [3]


def test_cards_of_no_pool_are_waited_for_while_the_old_cluster_serves() -> None:
    world = World(service_of(group(resource=NO_POOL)), cards=1)
    world.settle()
    old = world.active
    world.change_cluster(group(image="ray:2", resource=NO_POOL), image="ray:2")
    for _ in range(20):
        world.settle(1)
        assert world.backend == old
        assert world.can_serve(old)
    world.cards = 2
    world.settle()
    assert world.ready()
    assert list(world.clusters) == [world.active] != [old]
    assert "UpgradeWithGap" not in world.action_events


def test_cards_of_no_pool_are_handed_over_where_that_is_asked_for() -> None:
    always = {Annotation.IN_PLACE_UPGRADE.value: "always"}
    world = World(service_of(group(resource=NO_POOL), annotations=always), cards=1)
    world.settle()
    world.change_cluster(group(image="ray:2", resource=NO_POOL), image="ray:2")
    world.settle()
    assert world.ready()
    assert not world.pending


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("free", [1, 3, 100])
@pytest.mark.parametrize("promised", [0, 1])
def test_workers_that_no_node_suits_cost_no_worker_while_the_pool_has_room(
    replicas: int, free: int, promised: int
) -> None:
    """The pool keeps cards for the very workers that wait: those are there for them, too."""
    world = World(service_of(group(replicas=replicas)), cards=replicas + free)
    world.settle()
    old = world.active
    world.unschedulable = {"ray:2"}
    world.change_cluster(group(replicas=replicas, image="ray:2"), image="ray:2")
    world.reconcile()
    world.promised = promised
    world.settle(40)
    assert len(world.workers(world.clusters[old], "workers")) == replicas
    assert world.can_serve(old)
    world.unschedulable, world.promised = set(), 0
    world.settle(60)
    assert world.active != old
    assert world.ready()
