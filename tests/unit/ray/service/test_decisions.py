"""What the decisions about RayServices are, situation by situation."""

from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from gpu_control_plane.api.ray.names import Annotation, Finalizer, Label
from gpu_control_plane.api.ray.service import RayService, ServiceCondition
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.ray.cluster.manifests import ClusterContext
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.owned import OwnedService
from gpu_control_plane.ray.service import backend, handover
from gpu_control_plane.ray.service.actions import PatchCluster, RemoveFinalizer
from gpu_control_plane.ray.service.applications import (
    BadConfig,
    config_hash,
    digest_of,
    is_told,
    parse,
    remembered,
    telling,
)
from gpu_control_plane.ray.service.backend import Candidate, choose
from gpu_control_plane.ray.service.decide import decide
from gpu_control_plane.ray.service.desired_cluster import Marks, Match, match
from gpu_control_plane.ray.service.handover import (
    Done,
    Group,
    Grow,
    Shrink,
    Side,
    SwitchFirst,
    Wait,
    has_gap,
    next_move,
)
from gpu_control_plane.ray.service.incremental import Share, Shares, Steps, next_step
from unit.ray.service.world import CONFIG, POOL, START, World, group, service_of, template

ONE = {POOL: 1}


# Which cluster requests go to.


def candidate(name: str, *, takes_over: bool = False, answers: bool = False) -> Candidate:
    return Candidate(name, takes_over=takes_over, answers=answers)


@pytest.mark.parametrize(
    ("now", "target", "source", "must_leave", "chosen"),
    [
        ("", candidate("new", answers=True), None, False, ""),
        ("", candidate("new", takes_over=True, answers=True), None, False, "new"),
        ("old", candidate("new"), candidate("old", answers=True), False, "old"),
        ("old", candidate("new", answers=True), candidate("old", answers=True), False, "old"),
        ("old", candidate("new", answers=True), candidate("old"), False, "new"),
        ("old", candidate("new", answers=True), candidate("old", answers=True), True, "new"),
        ("old", candidate("new"), candidate("old"), True, "old"),
        ("new", candidate("new", answers=True), candidate("old", answers=True), False, "new"),
        ("new", candidate("new"), candidate("old", answers=True), False, "old"),
        ("new", candidate("new"), candidate("old"), False, "new"),
        ("gone", candidate("new", answers=True), None, False, "new"),
        ("old", None, candidate("old"), False, "old"),
        ("gone", None, candidate("old"), False, "old"),
        ("", None, candidate("old"), False, ""),
    ],
)
def test_requests_go_to_whom_can_answer(
    now: str, target: Candidate | None, source: Candidate | None, must_leave: bool, chosen: str
) -> None:
    assert choose(now, target, source, must_leave=must_leave) == chosen


# Steps of an incremental upgrade.


def shares(target: tuple[int, int], source: tuple[int, int]) -> Shares:
    return Shares(
        target=Share(capacity=target[0], traffic=target[1]), source=Share(capacity=source[0], traffic=source[1])
    )


@pytest.mark.parametrize(
    ("target", "source", "then_target", "then_source"),
    [
        ((0, 0), (100, 100), (40, 0), (100, 100)),
        ((40, 0), (100, 100), (40, 30), (100, 70)),
        ((40, 30), (100, 70), (40, 40), (100, 60)),
        ((40, 40), (100, 60), (40, 40), (60, 60)),
        ((40, 40), (60, 60), (80, 40), (60, 60)),
        ((80, 80), (60, 20), (80, 80), (20, 20)),
        ((100, 100), (20, 0), (100, 100), (0, 0)),
        ((100, 100), (0, 0), (100, 100), (0, 0)),
        ((100, 80), (20, 20), (100, 100), (20, 0)),
    ],
)
def test_capacity_comes_first_and_then_requests(
    target: tuple[int, int], source: tuple[int, int], then_target: tuple[int, int], then_source: tuple[int, int]
) -> None:
    steps = Steps(surge=40, step=30, interval=timedelta(seconds=10))
    step = next_step(shares(target, source), steps, target_ready=True, gateway_ready=True, now=START)
    found = step.shares.target, step.shares.source
    wanted = shares(then_target, then_source)
    assert found == (wanted.target, wanted.source)


@pytest.mark.parametrize(
    ("ready", "gateway", "seconds", "waits"),
    [
        (False, True, 60, "applications"),
        (True, False, 60, "Gateway"),
        (True, True, 3, "interval"),
        (True, True, 60, ""),
    ],
)
def test_a_step_waits_for_what_it_needs(ready: bool, gateway: bool, seconds: int, waits: str) -> None:
    held = msgspec.structs.replace(shares((40, 10), (100, 90)), moved=START)
    steps = Steps(surge=40, step=30, interval=timedelta(seconds=10))
    now = START + timedelta(seconds=seconds)
    step = next_step(held, steps, target_ready=ready, gateway_ready=gateway, now=now)
    assert waits in step.waits_for
    assert (step.shares != held) == (not waits)


# Steps of a handover.


def side(*groups: Group, head_ready: bool = True) -> Side:
    return Side(groups=groups, head_ready=head_ready)


def new(goal: int, wanted: int, running: int | None = None, name: str = "g") -> Group:
    there = wanted
    return Group(
        name=name, units=ONE, goal=goal, wanted=wanted, there=there, running=wanted if running is None else running
    )


def old(wanted: int, there: int | None = None, name: str = "g") -> Group:
    there = wanted if there is None else there
    return Group(name=name, units=ONE, wanted=wanted, there=there, running=there)


NOT_YET, MAY, DONE = (False, False), (False, True), (True, True)
"""Whether requests go to the new cluster already, and whether it could take them."""


@pytest.mark.parametrize(
    ("target", "source", "requests", "patient", "move"),
    [
        (side(new(2, 0), head_ready=False), side(old(2)), NOT_YET, True, Wait("its head")),
        (side(new(2, 0)), side(old(2)), NOT_YET, True, Shrink("g", 1)),
        (side(new(2, 0)), side(old(1, 2)), NOT_YET, True, Wait("the cards of a worker of group g that goes")),
        (side(new(2, 0)), side(old(1)), NOT_YET, True, Grow("g", 1)),
        (side(new(2, 1, 0)), side(old(1)), NOT_YET, True, Wait("a worker of group g that comes")),
        (side(new(2, 1)), side(old(1)), NOT_YET, True, Wait("its applications, which have a worker of each group")),
        (side(new(2, 1)), side(old(1)), NOT_YET, False, Shrink("g", 0, gap=True)),
        (side(new(2, 1)), side(old(1)), MAY, False, SwitchFirst("g")),
        (side(new(2, 1)), side(old(1)), DONE, True, Shrink("g", 0)),
        (side(new(2, 1)), side(old(0)), DONE, True, Grow("g", 2)),
        (side(new(2, 2)), side(old(0)), DONE, True, Done()),
        (side(new(0, 0)), side(old(2)), NOT_YET, True, Done()),
        (side(new(3, 3)), side(old(0)), DONE, True, Done()),
        (side(new(4, 2)), side(), DONE, True, Grow("g", 3)),
    ],
)
def test_workers_move_one_by_one(
    target: Side, source: Side, requests: tuple[bool, bool], patient: bool, move: handover.Move
) -> None:
    switched, may_answer = requests
    assert next_move(target, source, {POOL: 2}, switched=switched, may_answer=may_answer, patient=patient) == move


def test_cards_of_a_cluster_that_goes_are_waited_for() -> None:
    move = next_move(
        side(new(2, 1)), side(), {POOL: 2}, switched=True, may_answer=True, patient=False, others={POOL: 1}
    )
    assert move == Wait("the cards of a cluster that goes")


@pytest.mark.parametrize(
    ("goals", "held", "cards", "gap"),
    [
        ((1,), (1,), 1, True),
        ((1,), (1,), 2, False),
        ((2,), (2,), 2, False),
        ((1, 1), (1, 1), 2, True),
        ((1, 1), (2, 2), 4, False),
        ((10**9,), (10**9,), 10**9, False),
    ],
)
def test_it_is_known_before_whether_there_will_be_a_gap(
    goals: tuple[int, ...], held: tuple[int, ...], cards: int, gap: bool
) -> None:
    target = side(*(new(goal, 0, name=f"g{index}") for index, goal in enumerate(goals)))
    source = side(*(old(count, name=f"g{index}") for index, count in enumerate(held)))
    assert has_gap(target, source, {POOL: cards}) is gap


# What Ray Serve is told.


def test_a_configuration_is_known_again_whatever_its_order() -> None:
    assert config_hash(parse("a: 1\nb: {c: 2}")) == config_hash(parse("b: {c: 2}\na: 1"))


@pytest.mark.parametrize("text", ["{", "- a", "just words", "a: [", "!!python/object:os.system {}", "\t: x"])
def test_what_is_no_configuration_is_said(text: str) -> None:
    with pytest.raises(BadConfig):
        parse(text)


def test_keys_that_are_no_texts_become_texts() -> None:
    given = parse("a: {2: b, true: c, x: 2026-01-01}")
    assert given == {"a": {"2": "b", "true": "c", "x": "2026-01-01"}}
    assert config_hash(given)


_BILLION: Final = "n0: &n0 [x, x]\n" + "".join(f"n{n}: &n{n} [*n{n - 1}, *n{n - 1}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    "text",
    [_BILLION, "a: &a [*a]", "a: !!binary aGk=", "a: .nan", f"a: {10**400}"],
)
def test_a_configuration_that_json_does_not_hold_is_said(text: str) -> None:
    with pytest.raises(BadConfig):
        parse(text)


def test_a_cluster_that_is_replaced_keeps_its_configuration_and_gets_another_capacity() -> None:
    whole = telling({"applications": []}, "", 100, follows=True)
    annotation = remembered(whole.mark, START)
    assert is_told(whole, annotation)
    kept = telling({"applications": [1]}, annotation, 100, follows=False)
    assert is_told(kept, annotation)
    assert not is_told(telling({"applications": [1]}, annotation, 60, follows=False), annotation)
    assert digest_of(annotation) == config_hash({"applications": []})


# Clusters and their specs.


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
    made_from = Marks.of(service_of(group(replicas=2)).spec.ray_cluster_config)
    assert match(made_from, service_of(*groups, image=image).spec.ray_cluster_config) is found


def running(*groups: dict[str, Any], **given: Any) -> World:
    world = World(service_of(*(groups or (group(),)), **given))
    world.settle()
    assert world.ready()
    return world


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
    assert world.told.count("ChangeNotCarriedOut") == 1
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
    marks = world.clusters[world.active].metadata.annotations
    assert marks[Annotation.KUBERAY_VERSION.value] == RayOptions().version
    assert "TookOverRayCluster" in world.told_of_actions


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


def of_before(world: World, version: str) -> None:
    """All clusters have been made by another operator, or another release, whose hashes are not ours."""
    for held in list(world.clusters.values()):
        theirs = {Annotation.SPEC_HASH.value: "abc", Annotation.KUBERAY_VERSION.value: version}
        world.clusters[held.name] = replace(
            held, metadata=replace(held.metadata, annotations={**held.metadata.annotations, **theirs})
        )


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


def test_an_upgrade_whose_cards_are_taken_meanwhile_goes_on_worker_by_worker() -> None:
    world = running(group(replicas=2))
    world.cards = 4
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2")
    world.reconcile()
    assert not world.terms()
    world.others = 2
    world.settle()
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
            world._let_go(pod.name)
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
    world._delete(world.clusters[old])
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
    assert "UpgradeWithGap" in world.told_of_actions
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


# Gateways.

INCREMENTAL: Final = {
    "type": "NewClusterWithIncrementalUpgrade",
    "clusterUpgradeOptions": {"stepSizePercent": 50, "intervalSeconds": 1, "gatewayClassName": "g"},
}
SCALED: Final = {"enableInTreeAutoscaling": True}


def divided(**spec: Any) -> World:
    world = World(service_of(group(replicas=2), upgradeStrategy=INCREMENTAL, cluster=SCALED, **spec))
    world.settle()
    assert world.ready()
    assert world.gateway is not None
    assert world.route is not None
    return world


@pytest.mark.parametrize("crash_after", range(4))
def test_a_gateway_that_is_no_longer_needed_goes_also_after_a_crash(crash_after: int) -> None:
    world = divided()
    world.change(upgradeStrategy={"type": "NewCluster"})
    world.gateway_known = False
    world.reconcile()
    world.gateway_known = True
    world.reconcile(crash_after=crash_after)
    world.settle()
    assert (world.gateway, world.route) == (None, None)
    assert world.service.status.active_service_status is not None
    assert world.service.status.active_service_status.target_capacity is None


def test_a_service_is_not_suspended_before_its_gateway_is_gone() -> None:
    world = divided()
    world.change(suspend=True)
    world.gateway_known = False
    world.settle(6)
    assert situation(world, ServiceCondition.SUSPENDED) == ("", "")
    world.gateway_known = True
    world.settle(6)
    assert situation(world, ServiceCondition.SUSPENDED) == ("True", "SuspendComplete")
    assert (world.gateway, world.route) == (None, None)


def test_a_new_configuration_is_not_told_to_the_old_cluster_while_the_gateway_api_is_asked_for() -> None:
    world = divided()
    old, puts = world.active, len(world.puts)
    world.gateway_known = False
    config = CONFIG.replace("demo", "made-for-ray-2")
    body = {"headGroupSpec": {"template": template("ray:2")}, "workerGroupSpecs": [group(image="ray:2")], **SCALED}
    world.change(serveConfigV2=config, rayClusterConfig=body)
    world.settle(4)
    assert len(world.puts) == puts
    assert "ChangeNotCarriedOut" not in world.told
    world.gateway_known = True
    world.settle()
    assert world.active != old
    assert len({body["digest"] for name, body in world.puts if name == old}) == 1


def test_a_change_that_waits_for_the_gateway_api_is_not_lost_with_another_release() -> None:
    world = divided()
    old = world.active
    world.gateway_known = False
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    world.reconcile()
    of_before(world, "gpu-control-plane-0.0.1")
    world.reconcile()
    world.gateway_known = True
    world.settle()
    assert world.active != old


@pytest.mark.parametrize("then", ["ray:1", "ray:3"])
def test_a_way_back_is_gone_to_its_end_under_another_release(then: str) -> None:
    world = divided()
    old = world.active
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    while (world.shares() or {old: 100}).get(old) == 100:
        world.settle(1, step=timedelta(seconds=5))
    world.change_cluster(group(replicas=2, image=then), image=then, **SCALED)
    world.reconcile()
    of_before(world, "gpu-control-plane-0.0.1")
    world.settle()
    (left,) = world.clusters.values()
    assert left.spec.head_group_spec == world.service.spec.ray_cluster_config.head_group_spec
    assert (left.name == old) is (then == "ray:1")


def test_after_a_way_back_to_another_spec_the_service_is_not_up_to_date() -> None:
    world = divided()
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    world.settle(6, step=timedelta(seconds=5))
    assert world.pending
    world.change_cluster(group(replicas=2, image="ray:3"), image="ray:3", **SCALED)
    while world.pending:
        world.settle(1)
    assert situation(world, ServiceCondition.UP_TO_DATE) == ("False", "ChangeNotCarriedOut")
    world.settle()
    assert situation(world, ServiceCondition.UP_TO_DATE) == ("True", "UpToDate")


def test_an_incremental_upgrade_needs_no_requests_at_the_head() -> None:
    world = divided(excludeHeadPodFromServeSvc=True)
    old = world.active
    world.change_cluster(group(replicas=2, image="ray:2"), image="ray:2", **SCALED)
    world.settle()
    assert world.ready()
    assert world.active != old


# Conditions.


def situation(world: World, kind: ServiceCondition) -> tuple[str, str]:
    held = find(world.service.status.conditions, kind)
    return (held.status, held.reason) if held is not None else ("", "")


def test_conditions_of_a_service_that_comes_up() -> None:
    world = World(service_of(group()))
    world.reconcile()
    assert situation(world, ServiceCondition.READY) == ("False", "Initializing")
    assert situation(world, ServiceCondition.UPGRADE_IN_PROGRESS) == ("False", "Initializing")
    world.reconcile()
    assert situation(world, ServiceCondition.UPGRADE_IN_PROGRESS) == ("Unknown", "NoActiveCluster")
    world.settle()
    assert situation(world, ServiceCondition.READY) == ("True", "NonZeroServeEndpoints")
    assert situation(world, ServiceCondition.UPGRADE_IN_PROGRESS) == ("False", "NoPendingCluster")
    assert world.service.status.service_status == "Running"


def test_conditions_of_a_service_that_loses_its_pods() -> None:
    world = running()
    for pod in list(world.pods):
        world._let_go(pod)
    world.reconcile()
    assert situation(world, ServiceCondition.READY) == ("False", "ZeroServeEndpoints")
    assert world.service.status.service_status == ""


def test_conditions_of_a_suspended_service() -> None:
    world = running()
    world.change(suspend=True)
    decision = world.reconcile(crash_after=1)
    assert len(decision.actions) > 1, "it is said before anything goes"
    assert situation(world, ServiceCondition.SUSPENDING) == ("True", "SuspendRequested")
    assert situation(world, ServiceCondition.READY) == ("False", "SuspendInProgress")
    world.change(suspend=False)
    world.reconcile()
    assert situation(world, ServiceCondition.SUSPENDING) == ("True", "SuspendInProgress")
    assert not world.clusters, "it is done to the end"
    world.reconcile()
    assert situation(world, ServiceCondition.SUSPENDED) == ("True", "SuspendComplete")
    assert situation(world, ServiceCondition.READY) == ("False", "SuspendComplete")
    world.reconcile()
    assert situation(world, ServiceCondition.SUSPENDED) == ("False", "RayServiceResumed")
    assert situation(world, ServiceCondition.READY) == ("False", "Initializing")
    world.settle()
    assert world.ready()


def test_what_appears_after_a_suspension_goes() -> None:
    world = running()
    late = world.clusters[world.active]
    world.change(suspend=True)
    world.settle()
    assert situation(world, ServiceCondition.SUSPENDED) == ("True", "SuspendComplete")
    world.clusters[late.name] = late
    world.reconcile()
    assert not world.clusters


@pytest.mark.parametrize("since", ["never", "2026-01-01", "2026-01-01T00:00:00", ""])
def test_a_time_that_was_edited_is_written_anew(since: str) -> None:
    world = running()
    left = World(service_of(group()))
    left.settle()
    (other,) = left.clusters.values()
    annotations = {**other.metadata.annotations, Annotation.UNUSED_SINCE.value: since}
    world.clusters["left"] = replace(other, metadata=replace(other.metadata, name="left", annotations=annotations))
    world.settle()
    assert list(world.clusters) == [world.active]


def test_a_service_that_does_not_come_up_in_time_gives_its_cards_back_until_its_spec_changes() -> None:
    world = World(service_of(group(), annotations={Annotation.INITIALIZING_TIMEOUT.value: "5m"}), cards=0)
    world.settle(4)
    assert world.clusters
    world.now += timedelta(minutes=6)
    world.reconcile()
    assert situation(world, ServiceCondition.READY) == ("False", "InitializingTimeout")
    assert not world.clusters
    world.settle(4)
    assert not world.clusters
    world.cards = 5
    world.change_cluster(group(image="ray:2"), image="ray:2")
    world.settle()
    assert world.ready()


def test_an_invalid_spec_changes_nothing_and_is_left_by_correcting_it() -> None:
    world = running()
    decision = decide(replace(world.snapshot(), problems="spec.x: it is wrong."))
    assert len(decision.actions) == 1
    world._apply(decision.actions[0])
    assert situation(world, ServiceCondition.READY) == ("False", "ValidationFailed")
    world.reconcile()
    assert situation(world, ServiceCondition.READY) == ("True", "NonZeroServeEndpoints")


def test_while_kuberay_is_active_only_that_is_said() -> None:
    world = running()
    decision = decide(replace(world.snapshot(), other_operator="ray-operator in namespace kuberay"))
    assert len(decision.actions) == 1
    world._apply(decision.actions[0])
    assert situation(world, ServiceCondition.OTHER_OPERATOR_ACTIVE) == ("True", "OtherOperatorActive")
    assert decide(replace(world.snapshot(), other_operator="ray-operator in namespace kuberay")).actions == ()
    world.reconcile()
    assert situation(world, ServiceCondition.OTHER_OPERATOR_ACTIVE) == ("", "")


def test_a_service_that_goes_is_let_go_of() -> None:
    world = running()
    meta = replace(world.service.metadata, deletion_timestamp=START, finalizers=(Finalizer.SERVICE.value, "other"))
    decision = decide(replace(world.snapshot(), service=replace(world.service, metadata=meta)))
    assert decision.actions == (RemoveFinalizer(name=Finalizer.SERVICE.value),)


def test_a_service_that_another_manages_is_left_alone() -> None:
    world = World(service_of(group(), managedBy="kueue.x-k8s.io/multikueue"))
    assert decide(world.snapshot()).actions == ()


# Services.


def test_of_a_users_service_all_stays_but_selector_and_other_ports() -> None:
    given = {
        "metadata": {"name": "mine", "labels": {"team": "a"}, "annotations": {"x": "y"}},
        "spec": {
            "type": "NodePort",
            "selector": {"not": "this"},
            "ports": [{"name": "serve", "port": 80, "targetPort": 8000}, {"name": "other", "port": 9}],
        },
    }
    world = running(serveService=given)
    held = world.services["mine"]
    assert held.spec["type"] == "NodePort"
    assert held.spec["ports"] == [{"name": "serve", "port": 80, "targetPort": 8000}]
    assert held.spec["selector"] == {"ray.io/cluster": world.active, "ray.io/serve": "true"}
    assert held.metadata.labels["team"] == "a"


def test_an_address_that_the_heads_service_has_is_kept() -> None:
    service = service_of(group())
    world = running()
    context = ClusterContext(cluster=world.clusters[world.active])
    assert backend.head_manifest(service, context, None)["spec"]["clusterIP"] == "None"
    held = OwnedService(spec={"clusterIP": "10.0.0.1"})
    assert "clusterIP" not in backend.head_manifest(service, context, held)["spec"]


def test_a_head_without_a_port_for_requests_is_refused() -> None:
    def with_ports(*names: str) -> RayService:
        head = {
            "containers": [{"name": "ray", "image": "i", "ports": [{"name": n, "containerPort": 9} for n in names]}]
        }
        body = msgspec.to_builtins(service_of(group()))
        body["spec"]["rayClusterConfig"]["headGroupSpec"] = {"template": {"spec": head}}
        return msgspec.convert(body, RayService)

    assert "name one serve" in backend.port_problem(with_ports("dashboard"))
    assert backend.port_problem(with_ports("serve")) == ""
    assert backend.port_problem(service_of(group())) == ""


def test_both_services_need_names_of_their_own() -> None:
    assert "another name" in backend.name_problem(
        service_of(group(), serveService={"metadata": {"name": "svc-head-svc"}})
    )
    assert backend.name_problem(service_of(group(), serveService={"metadata": {"name": "mine"}})) == ""


def test_a_head_that_is_left_out_gets_no_requests() -> None:
    world = World(service_of(group(), excludeHeadPodFromServeSvc=True))
    world.settle()
    heads = [pod for pod in world.pods.values() if pod.is_head]
    assert [pod.metadata.labels[Label.SERVE.value] for pod in heads] == ["false"]
    assert world.endpoints() == 1


def test_pods_that_do_not_run_go_first() -> None:
    world = running(group(replicas=3))
    pods = [pod for pod in world.pods.values() if not pod.is_head]
    stuck = replace(pods[1], status=replace(pods[1].status, phase="Pending"))
    pods[1] = stuck
    spec = world.clusters[world.active].spec.worker_group_specs[0]
    assert handover.pods_to_go(pods, spec, 2) == (stuck.name,)


def test_what_is_written_for_a_change_of_workers_is_one_patch() -> None:
    world = running(group(replicas=1))
    world.change_cluster(group(replicas=2))
    patches = [action for action in world.reconcile().actions if isinstance(action, PatchCluster)]
    assert len(patches) == 1
    assert CONFIG in world.service.spec.serve_config_v2
