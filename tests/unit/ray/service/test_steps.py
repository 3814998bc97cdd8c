"""Which cluster requests go to, and the steps of upgrades, as tables."""

from datetime import timedelta

import msgspec
import pytest

from gpu_control_plane.ray.service import handover
from gpu_control_plane.ray.service.backend import Candidate, choose
from gpu_control_plane.ray.service.handover import (
    ClusterCapacity,
    Done,
    Group,
    Grow,
    Shrink,
    SwitchFirst,
    Wait,
    has_gap,
    next_move,
)
from gpu_control_plane.ray.service.incremental import Share, Shares, Steps, next_step
from unit.ray.service.builders import POOL, START

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


def cluster(*groups: Group, head_ready: bool = True) -> ClusterCapacity:
    return ClusterCapacity(groups=groups, head_ready=head_ready)


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
        (cluster(new(2, 0), head_ready=False), cluster(old(2)), NOT_YET, True, Wait("its head")),
        (cluster(new(2, 0)), cluster(old(2)), NOT_YET, True, Shrink("g", 1)),
        (cluster(new(2, 0)), cluster(old(1, 2)), NOT_YET, True, Wait("the cards of a worker of group g that goes")),
        (cluster(new(2, 0)), cluster(old(1)), NOT_YET, True, Grow("g", 1)),
        (cluster(new(2, 1, 0)), cluster(old(1)), NOT_YET, True, Wait("a worker of group g that comes")),
        (
            cluster(new(2, 1)),
            cluster(old(1)),
            NOT_YET,
            True,
            Wait("its applications, which have a worker of each group"),
        ),
        (cluster(new(2, 1)), cluster(old(1)), NOT_YET, False, Shrink("g", 0, gap=True)),
        (cluster(new(2, 1)), cluster(old(1)), MAY, False, SwitchFirst("g")),
        (cluster(new(2, 1)), cluster(old(1)), DONE, True, Shrink("g", 0)),
        (cluster(new(2, 1)), cluster(old(0)), DONE, True, Grow("g", 2)),
        (cluster(new(2, 2)), cluster(old(0)), DONE, True, Done()),
        (cluster(new(0, 0)), cluster(old(2)), NOT_YET, True, Done()),
        (cluster(new(3, 3)), cluster(old(0)), DONE, True, Done()),
        (cluster(new(4, 2)), cluster(), DONE, True, Grow("g", 3)),
    ],
)
def test_workers_move_one_by_one(
    target: ClusterCapacity, source: ClusterCapacity, requests: tuple[bool, bool], patient: bool, move: handover.Move
) -> None:
    switched, may_answer = requests
    assert next_move(target, source, {POOL: 2}, switched=switched, may_answer=may_answer, patient=patient) == move


def test_cards_of_a_cluster_that_goes_are_waited_for() -> None:
    move = next_move(
        cluster(new(2, 1)), cluster(), {POOL: 2}, switched=True, may_answer=True, patient=False, others={POOL: 1}
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
    target = cluster(*(new(goal, 0, name=f"g{index}") for index, goal in enumerate(goals)))
    source = cluster(*(old(count, name=f"g{index}") for index, count in enumerate(held)))
    assert has_gap(target, source, {POOL: cards}) is gap


def test_a_worker_gives_the_cards_that_its_init_containers_need() -> None:
    asks = {"resources": {"limits": {POOL: 2, "nvidia.com/gpu": 1, "example.com/nic": 1}}}
    assert handover.pod_units({"spec": {"initContainers": [asks]}}, (POOL,)) == {POOL: 2, "nvidia.com/gpu": 1}
