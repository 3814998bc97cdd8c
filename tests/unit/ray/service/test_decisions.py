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
from unit.ray.service.builders import NO_POOL, POOL, group, service_of
from unit.ray.service.service_model import RayServiceModel, of_before, running, situation

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
    model = running(group(replicas=1))
    before = model.active
    model.change_cluster(group(replicas=3), group("more", replicas=2))
    model.settle()
    assert model.active == before
    held = model.clusters[before].spec.worker_group_specs
    assert [(each.group_name, each.replicas) for each in held] == [("workers", 3), ("more", 2)]


def test_replicas_that_the_autoscaler_decided_on_stay() -> None:
    model = running(group(replicas=1, maxReplicas=5), cluster={"enableInTreeAutoscaling": True})
    model.change_cluster(group(replicas=1, maxReplicas=4), enableInTreeAutoscaling=True)
    model.settle()
    held = model.clusters[model.active].spec.worker_group_specs[0]
    assert (held.replicas, held.max_replicas) == (2, 4)


@pytest.mark.parametrize("zero_downtime", [True, False])
def test_without_upgrades_a_change_is_told_and_not_carried_out(zero_downtime: bool) -> None:
    model = running(upgradeStrategy={"type": "None"} if zero_downtime else None)
    model.options = RayOptions(zero_downtime=zero_downtime)
    before = model.active
    model.change_cluster(group(image="ray:2"), image="ray:2")
    model.settle()
    assert list(model.clusters) == [before]
    held = find(model.service.status.conditions, ServiceCondition.UP_TO_DATE)
    assert held is not None
    assert (held.status, held.reason) == ("False", "ChangeNotCarriedOut")
    assert model.events.count("ChangeNotCarriedOut") == 1
    assert model.ready()


@pytest.mark.parametrize("seen", [True, False])
def test_clusters_of_kuberay_are_taken_over_without_a_second_one(seen: bool) -> None:
    """Its hashes are not ours. Only a spec that it had not seen yet is carried out."""
    model = running()
    before = model.active
    held = model.clusters[before]
    theirs = {Annotation.SPEC_HASH.value: "abc", Annotation.KUBERAY_VERSION.value: "v1.4.0"}
    left = {Annotation.APPLIED_SCALE.value, Annotation.SERVE_CONFIG.value}
    kept = {key: value for key, value in held.metadata.annotations.items() if key not in left}
    model.clusters[before] = replace(held, metadata=replace(held.metadata, annotations={**kept, **theirs}))
    if not seen:
        model.change_cluster(group(image="ray:2"), image="ray:2")
    model.settle()
    assert (model.active == before) is seen
    annotations = model.clusters[model.active].metadata.annotations
    assert annotations[Annotation.KUBERAY_VERSION.value] == RayOptions().version
    assert "TookOverRayCluster" in model.action_events


@pytest.mark.parametrize("version", ["v1.4.0", "gpu-control-plane-0.0.1"])
@pytest.mark.parametrize("crash_after", range(5))
def test_a_change_at_the_time_of_a_take_over_is_carried_out_whenever_the_operator_dies(
    version: str, crash_after: int
) -> None:
    model = running()
    before = model.active
    of_before(model, version)
    model.change_cluster(group(image="ray:2"), image="ray:2")
    model.reconcile(crash_after=crash_after)
    model.reconcile(crash_after=crash_after)
    model.settle()
    assert model.active != before
    assert model.clusters[model.active].spec.head_group_spec == model.service.spec.ray_cluster_config.head_group_spec


def test_a_change_that_was_not_carried_out_is_not_taken_for_one_that_was_by_another_release() -> None:
    model = running(upgradeStrategy={"type": "None"})
    model.change_cluster(group(image="ray:2"), image="ray:2")
    model.settle()
    of_before(model, "gpu-control-plane-0.0.1")
    model.settle()
    assert situation(model, ServiceCondition.UP_TO_DATE) == ("False", "ChangeNotCarriedOut")


def test_numbers_of_workers_that_change_while_the_operator_is_replaced_are_followed() -> None:
    model = running(group(replicas=1))
    before = model.active
    of_before(model, "gpu-control-plane-0.0.1")
    model.change_cluster(group(replicas=3))
    model.settle()
    assert model.active == before
    assert [each.replicas for each in model.clusters[before].spec.worker_group_specs] == [3]


@pytest.mark.parametrize("steps", range(0, 16, 3))
def test_a_handover_goes_on_under_another_release(steps: int) -> None:
    scaled = {"enableInTreeAutoscaling": True}
    model = RayServiceModel(service_of(group(replicas=2, maxReplicas=9), cluster=scaled), cards=2)
    model.settle()
    model.change_cluster(group(replicas=2, maxReplicas=9, image="ray:2"), image="ray:2", **scaled)
    for _ in range(steps):
        model.reconcile()
        model.cluster_controller()
        model.kubelet()
    of_before(model, "gpu-control-plane-0.0.1")
    model.settle(150, step=timedelta(seconds=90))
    (left,) = model.clusters.values()
    assert left.spec.head_group_spec == model.service.spec.ray_cluster_config.head_group_spec
    assert left.spec.worker_group_specs[0].max_replicas == 9


def test_a_cluster_of_before_is_taken_back_while_it_is_still_there() -> None:
    model = running()
    first = model.active
    model.change_cluster(group(image="ray:2"), image="ray:2")
    for _ in range(12):
        model.reconcile()
        model.cluster_controller()
        model.kubelet()
    assert model.active != first
    assert first in model.clusters
    model.change_cluster(group())
    model.settle()
    assert model.active == first


@pytest.mark.parametrize(("together", "taken"), [(False, 2), (True, 2), (True, 1)])
def test_an_upgrade_whose_cards_are_taken_meanwhile_goes_on_worker_by_worker(together: bool, taken: int) -> None:
    model = running(group(replicas=2))
    model.cards, model.start_together = 4, together
    model.change_cluster(group(replicas=2, image="ray:2"), image="ray:2")
    model.reconcile()
    assert not model.budget()
    model.others = taken
    model.settle()
    assert "UpgradeByHandover" in model.action_events
    assert "UpgradeWithGap" not in model.action_events
    assert model.ready()
    assert not model.pending
    assert list(model.clusters) == [model.active]


@pytest.mark.parametrize(("workers", "free", "least"), [(8, 0, 4), (5, 0, 2), (4, 2, 3), (3, 1, 2), (2, 0, 1)])
def test_requests_go_over_when_the_new_cluster_has_as_many_workers(workers: int, free: int, least: int) -> None:
    model = RayServiceModel(service_of(group(replicas=workers)), cards=workers + free)
    model.settle()
    model.change_cluster(group(replicas=workers, image="ray:2"), image="ray:2")
    fewest = workers
    for _ in range(200):
        model.reconcile()
        model.cluster_controller()
        model.kubelet()
        model.now += timedelta(seconds=30)
        fewest = min(fewest, len(model.workers(model.clusters[model.backend], "workers")))
    assert model.ready()
    assert not model.pending
    assert fewest == least


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_applications_that_fail_never_cost_the_last_worker_that_answers(workers: int) -> None:
    model = RayServiceModel(service_of(group(replicas=workers)), cards=workers)
    model.settle()
    before = model.active
    model.serve.applications_fail = {"ray:2"}
    model.change_cluster(group(replicas=workers, image="ray:2"), image="ray:2")
    for _ in range(200):
        model.reconcile()
        model.cluster_controller()
        model.kubelet()
        model.now += timedelta(minutes=5)
    assert (model.active, model.backend) == (before, before)
    assert model.can_serve(before)
    assert "DEPLOY_FAILED" in "".join(model.why())
    model.change_cluster(group(replicas=workers))
    model.settle(150, step=timedelta(seconds=90))
    assert model.ready()
    assert (model.active, len(model.workers(model.clusters[before], "workers"))) == (before, workers)


@pytest.mark.parametrize("old_answers", [True, False])
@pytest.mark.parametrize("then", ["ray:1", "ray:3"])
def test_a_cluster_that_has_requests_is_not_dropped_by_another_change(then: str, old_answers: bool) -> None:
    model, old = promoted_but_for_the_status()
    new = model.backend
    if not old_answers:
        for pod in [pod for pod in model.pods.values() if pod.name.startswith(old)]:
            model.delete_pod(pod.name)
        model.kubelet()
    model.change_cluster(group(image=then), image=then)
    for _ in range(3):
        model.reconcile()
        assert new in model.clusters
        assert model.can_serve(model.backend)
    model.settle()
    assert model.ready()
    assert (model.active == old) is (then == "ray:1")
    assert list(model.clusters) == [model.active]


def test_a_cluster_that_has_requests_is_not_dropped_when_the_old_one_is_gone() -> None:
    model, old = promoted_but_for_the_status()
    new = model.backend
    model.delete(model.clusters[old])
    model.change_cluster(group(image="ray:3"), image="ray:3")
    model.reconcile()
    assert model.backend == new
    assert model.can_serve(new)
    model.settle()
    assert model.ready()


def promoted_but_for_the_status() -> tuple[RayServiceModel, str]:
    """Requests have just gone over to the second cluster when the operator dies; and the first one's name."""
    model = running()
    old = model.active
    model.change_cluster(group(image="ray:2"), image="ray:2")
    while model.backend == old:
        model.cluster_controller()
        model.kubelet()
        model.reconcile(crash_after=2)
    assert model.active == old
    return model, old


@pytest.mark.parametrize("free", [0, 1, 20])
def test_a_used_up_quota_is_handed_over_as_a_full_pool_is(free: int) -> None:
    model = RayServiceModel(service_of(group(replicas=4)), cards=4 + free)
    model.quota = 4
    model.settle()
    model.change_cluster(group(replicas=4, image="ray:2"), image="ray:2")
    fewest = 4
    for _ in range(200):
        model.reconcile()
        model.cluster_controller()
        model.kubelet()
        model.now += timedelta(seconds=20)
        fewest = min(fewest, len(model.workers(model.clusters[model.backend], "workers")))
    assert model.ready()
    assert not model.pending
    assert list(model.clusters) == [model.active]
    assert fewest == 2


def test_an_upgrade_that_becomes_a_handover_with_a_gap_says_so() -> None:
    model = RayServiceModel(service_of(group(replicas=1)), cards=9)
    model.quota = 1
    model.settle()
    model.change_cluster(group(replicas=1, image="ray:2"), image="ray:2")
    model.settle()
    assert "UpgradeWithGap" in model.action_events
    assert model.ready()
    assert not model.pending


def test_a_service_without_a_configuration_says_what_it_lacks() -> None:
    model = RayServiceModel(service_of(group(), config=""))
    model.settle(8)
    assert "spec.serveConfigV2 is empty" in "".join(model.why())


def test_a_handover_can_be_taken_back_at_every_step() -> None:
    for steps in range(40):
        model = RayServiceModel(service_of(group(replicas=3)), cards=3)
        model.settle()
        first = model.active
        model.change_cluster(group(replicas=3, image="ray:2"), image="ray:2")
        for _ in range(steps):
            model.reconcile()
            model.cluster_controller()
            model.kubelet()
        promoted = model.active != first
        model.change_cluster(group(replicas=3))
        model.settle(150, step=timedelta(seconds=90))
        assert model.ready(), steps
        assert promoted or model.active == first, steps
        assert [each.replicas for each in model.clusters[model.active].spec.worker_group_specs] == [3]


def test_cards_of_no_pool_are_waited_for_while_the_old_cluster_serves() -> None:
    model = RayServiceModel(service_of(group(resource=NO_POOL)), cards=1)
    model.settle()
    old = model.active
    model.change_cluster(group(image="ray:2", resource=NO_POOL), image="ray:2")
    for _ in range(20):
        model.settle(1)
        assert model.backend == old
        assert model.can_serve(old)
    model.cards = 2
    model.settle()
    assert model.ready()
    assert list(model.clusters) == [model.active] != [old]
    assert "UpgradeWithGap" not in model.action_events


def test_cards_of_no_pool_are_handed_over_where_that_is_asked_for() -> None:
    always = {Annotation.IN_PLACE_UPGRADE.value: "always"}
    model = RayServiceModel(service_of(group(resource=NO_POOL), annotations=always), cards=1)
    model.settle()
    model.change_cluster(group(image="ray:2", resource=NO_POOL), image="ray:2")
    model.settle()
    assert model.ready()
    assert not model.pending


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("free", [1, 3, 100])
@pytest.mark.parametrize("promised", [0, 1])
def test_workers_that_no_node_suits_cost_no_worker_while_the_pool_has_room(
    replicas: int, free: int, promised: int
) -> None:
    """The pool keeps cards for the very workers that wait: those are there for them, too."""
    model = RayServiceModel(service_of(group(replicas=replicas)), cards=replicas + free)
    model.settle()
    old = model.active
    model.unschedulable = {"ray:2"}
    model.change_cluster(group(replicas=replicas, image="ray:2"), image="ray:2")
    model.reconcile()
    model.promised = promised
    model.settle(40)
    assert len(model.workers(model.clusters[old], "workers")) == replicas
    assert model.can_serve(old)
    model.unschedulable, model.promised = set(), 0
    model.settle(60)
    assert model.active != old
    assert model.ready()
