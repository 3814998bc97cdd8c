"""Random histories of drivers, people, lost machines, budgets and crashes never break what upgrades promise."""

import contextlib
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Canary, Drain, UpgradePolicy, WaitForCompletion
from unit.operator.upgrade.operator import Killed, Operator
from unit.operator.upgrade.world import NEVER, Habits, World

S = UpgradeState
GOOD = Habits()
_nodes = st.integers(0, 4).map(lambda number: f"node-{number}")
_habits = st.sampled_from(
    [
        GOOD,
        Habits(agent=True),
        Habits(agent=True, deaf=True),
        Habits(agent=True, validator=False),
        Habits(build=NEVER),
        Habits(crashes=True),
        Habits(budget=NEVER),
        Habits(budget=60.0),
        Habits(check=NEVER),
        Habits(lost_at=S.POD_DELETION_REQUIRED),
        Habits(lost_at=S.POD_RESTART_REQUIRED),
        Habits(lost_at=S.VALIDATION_REQUIRED),
    ]
)
_policies = st.builds(
    UpgradePolicy,
    auto_upgrade=st.just(True),
    max_parallel_upgrades=st.integers(0, 3),
    max_unavailable=st.sampled_from(["0", "1", "40%", "100%"]),
    paused=st.booleans(),
    drain=st.sampled_from([None, Drain(enable=True), Drain(enable=True, force=True, timeout_seconds=30)]),
    wait_for_completion=st.sampled_from([None, WaitForCompletion(pod_selector="app=train", timeout_seconds=60)]),
    canary=st.sampled_from([None, Canary(nodes=1), Canary(node_selector={"tier": "first"})]),
)


class Histories(RuleBasedStateMachine):
    """Anything may happen at any moment; the operator works now and then, on old news, and dies when it likes."""

    def __init__(self) -> None:
        super().__init__()
        policy = UpgradePolicy(auto_upgrade=True, max_parallel_upgrades=2, max_unavailable="40%")
        habits = (GOOD, GOOD, Habits(agent=True), Habits(agent=True, deaf=True), Habits(agent=True, validator=False))
        self.world = World(policy, [(f"node-{number}", each) for number, each in enumerate(habits)])
        self.cordoned: set[str] = set()
        self.rng = random.Random(0)
        self.operator = Operator(self.world, self.rng)
        self.operator.settle()
        self.world.publish_driver()

    @rule(seconds=st.sampled_from([1, 10, 45, 130, 700, 2000]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(self.world.clock + seconds)

    @rule(seed=st.integers(0, 1000))
    def the_operator_works(self, seed: int) -> None:
        self.rng.seed(seed)
        self.operator.settle()

    @rule(seed=st.integers(0, 1000), writes=st.integers(1, 6), stale=st.booleans())
    def another_process_takes_over_and_dies(self, seed: int, writes: int, stale: bool) -> None:
        self.rng.seed(seed)
        with contextlib.suppress(Killed):
            Operator(self.world, self.rng, writes=writes, stale=stale).settle()
        self.operator = Operator(self.world, self.rng)

    @rule()
    def a_new_driver_is_published(self) -> None:
        self.world.publish_driver()

    @rule(policy=_policies)
    def the_policy_changes(self, policy: UpgradePolicy) -> None:
        self.world.policy = policy

    @rule(name=_nodes, value=st.sampled_from(["true", None]))
    def a_person_skips(self, name: str, value: str | None) -> None:
        self.world.label(name, NodeLabel.UPGRADE_SKIP, value)

    @rule(name=_nodes)
    def a_person_asks_for_an_upgrade(self, name: str) -> None:
        self.world.annotate(name, NodeAnnotation.UPGRADE_REQUESTED, "true")

    @rule(name=_nodes, cordon=st.booleans())
    def a_person_cordons(self, name: str, cordon: bool) -> None:
        """People leave a node alone that is under way, or that an upgrade left cordoned."""
        machine = self.world.machines[name]
        fresh = machine.state in {S.NONE, S.DONE} or NodeAnnotation.STARTED not in machine.annotations
        if machine.state in {S.NONE, S.DONE, S.REQUIRED} and fresh:
            self.world.change(name, unschedulable=cordon)
            (self.cordoned.add if cordon else self.cordoned.discard)(name)

    @rule(name=_nodes, state=st.sampled_from([S.REQUIRED.value, None]))
    def a_person_tries_a_failed_node_again(self, name: str, state: str | None) -> None:
        if self.world.machines[name].state is S.FAILED:
            self.world.label(name, NodeLabel.UPGRADE_STATE, state)

    @rule(name=_nodes)
    def a_machine_is_lost(self, name: str) -> None:
        self.world.change(name, ready=False)

    @rule(name=_nodes, habits=_habits)
    def a_machine_comes_back(self, name: str, habits: Habits) -> None:
        self.world.come_back(name, habits)

    @rule(name=_nodes)
    def upgrades_are_switched_off_and_on(self, name: str) -> None:
        self.operator.switch_off()
        for name_, machine in self.world.machines.items():
            assert not machine.state
            assert machine.unschedulable is (name_ in self.cordoned)

    @invariant()
    def nobody_keeps_the_agent_waiting_for_nothing(self) -> None:
        for machine in self.world.machines.values():
            paused = NodeLabel.AGENT in machine.labels
            assert not paused or machine.state is S.POD_RESTART_REQUIRED, machine

    def teardown(self) -> None:
        """Once everything is mended, every node gets the newest driver and is left as people wanted it."""
        world = self.world
        world.policy = replace(world.policy, paused=False, max_parallel_upgrades=2, max_unavailable="100%")
        for name in world.machines:
            world.label(name, NodeLabel.UPGRADE_SKIP, None)
            world.come_back(name, GOOD)
        for _ in range(3):
            self._run_to_the_end()
            for name, machine in world.machines.items():
                if machine.state is S.FAILED:
                    world.label(name, NodeLabel.UPGRADE_STATE, S.REQUIRED.value)
        for name, machine in world.machines.items():
            assert machine.state is S.DONE, machine
            assert machine.revision == world.revision, machine
            assert machine.unschedulable is (name in self.cordoned), machine
            assert not machine.annotations.keys() - {NodeAnnotation.STARTED, NodeAnnotation.STEP_SINCE}, machine

    def _run_to_the_end(self) -> None:
        operator = Operator(self.world, self.rng)
        for _ in range(1000):
            moment = min(operator.settle(), self.world.next_happening)
            if moment == NEVER:
                return
            self.world.advance(moment)
        raise AssertionError("it never ends")


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
