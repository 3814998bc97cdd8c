"""Two hundred nodes, a tenth of everything going wrong, and an operator that dies after every write."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import settings
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Drain, PodDeletion, UpgradePolicy
from gpu_control_plane.operator.upgrade.slots import share
from unit.operator.upgrade.nodes import gpu_pod
from unit.operator.upgrade.operator import Killed, Operator
from unit.operator.upgrade.world import NEVER, Habits, World

S = UpgradeState
QUICK = settings.get_current_profile_name() == "quick"
"""`make test-fast` tries a smaller fleet."""
NODES, EACH = (60, 3) if QUICK else (200, 10)
"""How many there are, and how many of each kind of trouble."""
POLICY = UpgradePolicy(auto_upgrade=True, max_parallel_upgrades=20, max_unavailable="60%")
TROUBLE = {
    "driver-stuck": Habits(build=NEVER),
    "driver-crashes": Habits(crashes=True),
    "budget-refuses": Habits(budget=NEVER),
    "lost-while-emptied": Habits(lost_at=S.POD_DELETION_REQUIRED),
    "lost-while-restarted": Habits(lost_at=S.POD_RESTART_REQUIRED),
    "never-validated": Habits(check=NEVER),
    "nobody-validates": Habits(validator=False),
}
"""What makes an upgrade fail."""
NUISANCE = {
    "budget-refuses-a-while": Habits(budget=120.0),
    "agent-validates": Habits(validator=False, agent=True),
    "agent-lets-go": Habits(agent=True),
    "agent-holds-on": Habits(agent=True, deaf=True),
    "slow": Habits(build=900.0, check=400.0),
}
"""What does not."""
SKIPPED = "skipped"
CORDONED = "cordoned-before"
BARE = "bare-pod"
RESTART = 3.0
"""Seconds until another process has taken over."""


def names(kind: str) -> list[str]:
    return [f"{kind}-{number}" for number in range(EACH)]


def fleet(policy: UpgradePolicy = POLICY) -> World:
    kinds = {**TROUBLE, **NUISANCE, SKIPPED: Habits(), CORDONED: Habits(), BARE: Habits()}
    machines = [(name, habits) for kind, habits in kinds.items() for name in names(kind)]
    machines += [(f"good-{number}", Habits()) for number in range(NODES - len(machines))]
    world = World(policy, machines)
    for name in names(SKIPPED):
        world.label(name, NodeLabel.UPGRADE_SKIP, "true")
    for name in names(CORDONED):
        world.change(name, unschedulable=True)
    for name in names(BARE):
        pod = gpu_pod("bare", owner=None, node=name)
        world.change(name, pods={pod.metadata.uid: pod})
    return world


def lives(world: World, rng: random.Random, writes: int | None, *, stale: bool) -> Iterator[Operator]:
    while True:
        yield Operator(world, rng, writes=writes, stale=stale)


def run_to_the_end(world: World, *, writes: int | None = None, stale: bool = False, seed: int = 1) -> int:
    """Until nothing would ever happen again; the number of lives it took."""
    rng = random.Random(seed)
    for count, operator in enumerate(lives(world, rng, writes, stale=stale), start=1):
        try:
            while True:
                until = operator.settle()
                moment = min(until, world.next_happening)
                if moment == NEVER:
                    return count
                world.advance(moment)
        except Killed:
            world.advance(world.clock + RESTART)
    raise AssertionError


@pytest.mark.parametrize(
    ("writes", "stale"),
    [(None, False), (1, False), (7, False), (None, True), (3, True)],
    ids=["one life", "killed after every write", "killed now and then", "old news", "old news and killed"],
)
def test_the_right_nodes_are_done_and_the_others_say_why(writes: int | None, stale: bool) -> None:
    world = fleet()
    run_to_the_end(world)
    assert {machine.state for machine in world.machines.values()} == {S.DONE}
    world.publish_driver()
    lives = run_to_the_end(world, writes=writes, stale=stale)
    assert writes is None or lives > NODES / writes
    failed = {name for kind in (*TROUBLE, BARE) for name in names(kind)}
    skipped = set(names(SKIPPED))
    for name, machine in world.machines.items():
        expected = S.FAILED if name in failed else S.REQUIRED if name in skipped else S.DONE
        assert machine.state is expected, name
        assert (NodeAnnotation.FAILURE in machine.annotations) is (name in failed), name
        assert machine.unschedulable is (name in failed or name in names(CORDONED)), name
        assert NodeLabel.AGENT not in machine.labels, name
    assert world.holding() == 0
    assert world.ever_failed == failed
    assert not world.touched & (skipped | set(names(BARE)))


def test_failed_nodes_are_done_once_they_are_mended_and_tried_again() -> None:
    world = fleet()
    run_to_the_end(world)
    world.publish_driver()
    run_to_the_end(world)
    for name, machine in world.machines.items():
        if machine.state is S.FAILED:
            driver = replace(machine.driver, ready=True, restarts=0, leaving=False) if machine.driver else None
            world.change(name, habits=Habits(), ready=True, driver=driver, refuses_until=0.0, validated=True, pods={})
            world.label(name, NodeLabel.UPGRADE_STATE, S.REQUIRED.value)
        world.label(name, NodeLabel.UPGRADE_SKIP, None)
    run_to_the_end(world, writes=1)
    for name, machine in world.machines.items():
        assert machine.state is S.DONE, name
        assert machine.revision == world.revision, name
        assert machine.unschedulable is (name in names(CORDONED)), name
        assert NodeAnnotation.FAILURE not in machine.annotations, name


@pytest.mark.parametrize("writes", [None, 1], ids=["one life", "killed after every write"])
def test_another_driver_is_tried_on_nodes_that_failed_and_the_same_one_is_not(writes: int | None) -> None:
    world = fleet()
    run_to_the_end(world)
    world.publish_driver()
    run_to_the_end(world)
    failed = {name for name, machine in world.machines.items() if machine.state is S.FAILED}
    before = {name: world.machines[name].annotations for name in failed}
    world.advance(world.clock + 86400)
    run_to_the_end(world, writes=writes)
    assert {name: world.machines[name].annotations for name in failed} == before
    for kind in ("driver-stuck", "driver-crashes", "never-validated"):
        for name in names(kind):
            world.change(name, habits=Habits())
    world.publish_driver()
    run_to_the_end(world, writes=writes)
    for kind in ("driver-stuck", "driver-crashes", "never-validated"):
        for name in names(kind):
            machine = world.machines[name]
            assert (machine.state, machine.unschedulable, machine.revision) == (S.DONE, False, 3), name
    for name in names("budget-refuses"):
        assert world.machines[name].state is S.FAILED, name
    assert world.holding() == 0


@pytest.mark.parametrize("writes", [None, 1], ids=["one life", "killed after every write"])
def test_lost_nodes_stop_nobody_although_their_pods_may_stay_for_ever(writes: int | None) -> None:
    policy = UpgradePolicy(
        auto_upgrade=True,
        max_parallel_upgrades=1,
        max_unavailable="50%",
        pod_deletion=PodDeletion(timeout_seconds=0),
    )
    lost = [f"a-lost-{number}" for number in range(3)]
    good = [f"good-{number}" for number in range(9)]
    habits = {name: Habits(lost_at=S.POD_DELETION_REQUIRED) for name in lost} | dict.fromkeys(good, Habits())
    world = World(policy, habits.items())
    run_to_the_end(world)
    world.publish_driver()
    run_to_the_end(world, writes=writes)
    assert {world.machines[name].state for name in good} == {S.DONE}
    assert {world.machines[name].state for name in lost} == {S.FAILED}
    assert world.holding() == 0
    for name in lost:
        world.come_back(name, Habits())
    run_to_the_end(world, writes=writes)
    assert {machine.state for machine in world.machines.values()} == {S.DONE}
    assert not any(machine.unschedulable for machine in world.machines.values())


@pytest.mark.parametrize("stale", [False, True], ids=["fresh news", "old news"])
def test_no_more_nodes_than_allowed_are_out_of_service(stale: bool) -> None:
    """Without a bound for nodes under way, that for nodes out of service holds; the world watches over it."""
    policy = UpgradePolicy(auto_upgrade=True, max_parallel_upgrades=0, max_unavailable="7%")
    world = World(policy, [(f"good-{number}", Habits(agent=number % 2 == 0)) for number in range(NODES)])
    for number in range(EACH):
        world.change(f"good-{number}", unschedulable=True)
    run_to_the_end(world)
    world.publish_driver()
    run_to_the_end(world, writes=25, stale=stale)
    assert {machine.state for machine in world.machines.values()} == {S.DONE}
    assert world.most_out == share(NODES, "7%") == (5 if QUICK else 14)


def test_a_drain_empties_what_eviction_could_not() -> None:
    world = fleet(
        UpgradePolicy(
            auto_upgrade=True, max_parallel_upgrades=0, max_unavailable="60%", drain=Drain(enable=True, force=True)
        )
    )
    run_to_the_end(world)
    world.publish_driver()
    run_to_the_end(world, writes=1)
    assert {world.machines[name].state for name in names(BARE)} == {S.DONE}
    assert {world.machines[name].state for name in names("budget-refuses")} == {S.FAILED}


def test_switching_off_in_the_middle_leaves_no_trace() -> None:
    world = fleet()
    run_to_the_end(world)
    world.publish_driver()
    operator = Operator(world, random.Random(2))
    operator.settle()
    world.advance(world.clock + 100)
    operator.settle()
    assert world.holding() > 0
    operator.switch_off()
    for name, machine in world.machines.items():
        assert not machine.state, name
        assert machine.unschedulable is (name in names(CORDONED)), name
        assert NodeLabel.AGENT not in machine.labels, name
        assert not machine.annotations, name
