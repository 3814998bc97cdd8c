"""Random histories of drivers, people, lost machines, budgets and crashes never break what upgrades promise."""

import contextlib
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Canary, Drain, UpgradePolicy, WaitForCompletion
from unit.operator.upgrade.cluster_model import NEVER, ClusterModel, NodeBehaviour
from unit.operator.upgrade.operator_model import Killed, OperatorModel

S = UpgradeState
GOOD = NodeBehaviour()
_nodes = st.integers(0, 4).map(lambda number: f"node-{number}")
_habits = st.sampled_from(
    [
        GOOD,
        NodeBehaviour(agent=True),
        NodeBehaviour(agent=True, deaf=True),
        NodeBehaviour(agent=True, validator=False),
        NodeBehaviour(build=NEVER),
        NodeBehaviour(crashes=True),
        NodeBehaviour(budget=NEVER),
        NodeBehaviour(budget=60.0),
        NodeBehaviour(check=NEVER),
        NodeBehaviour(lost_at=S.POD_DELETION_REQUIRED),
        NodeBehaviour(lost_at=S.POD_RESTART_REQUIRED),
        NodeBehaviour(lost_at=S.VALIDATION_REQUIRED),
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
    """Anything may happen at any moment; the operator works now and then, with an outdated cache, and dies at any
    write."""

    def __init__(self) -> None:
        super().__init__()
        policy = UpgradePolicy(auto_upgrade=True, max_parallel_upgrades=2, max_unavailable="40%")
        behaviour = (
            GOOD,
            GOOD,
            NodeBehaviour(agent=True),
            NodeBehaviour(agent=True, deaf=True),
            NodeBehaviour(agent=True, validator=False),
        )
        self.cluster = ClusterModel(policy, [(f"node-{number}", each) for number, each in enumerate(behaviour)])
        self.cordoned: set[str] = set()
        self.rng = random.Random(0)
        self.operator = OperatorModel(self.cluster, self.rng)
        self.operator.settle()
        self.cluster.publish_driver()

    @rule(seconds=st.sampled_from([1, 10, 45, 130, 700, 2000]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.advance(self.cluster.clock + seconds)

    @rule(seed=st.integers(0, 1000))
    def the_operator_works(self, seed: int) -> None:
        self.rng.seed(seed)
        self.operator.settle()

    @rule(seed=st.integers(0, 1000), writes=st.integers(1, 6), stale=st.booleans())
    def another_process_takes_over_and_dies(self, seed: int, writes: int, stale: bool) -> None:
        self.rng.seed(seed)
        with contextlib.suppress(Killed):
            OperatorModel(self.cluster, self.rng, writes=writes, stale=stale).settle()
        self.operator = OperatorModel(self.cluster, self.rng)

    @rule()
    def a_new_driver_is_published(self) -> None:
        self.cluster.publish_driver()

    @rule(policy=_policies)
    def the_policy_changes(self, policy: UpgradePolicy) -> None:
        self.cluster.policy = policy

    @rule(name=_nodes, value=st.sampled_from(["true", None]))
    def a_person_skips(self, name: str, value: str | None) -> None:
        self.cluster.label(name, NodeLabel.UPGRADE_SKIP, value)

    @rule(name=_nodes, value=st.sampled_from(["first", None]))
    def a_person_says_who_goes_first(self, name: str, value: str | None) -> None:
        self.cluster.label(name, "tier", value)

    @rule(name=_nodes)
    def a_person_asks_for_an_upgrade(self, name: str) -> None:
        self.cluster.annotate(name, NodeAnnotation.UPGRADE_REQUESTED, "true")

    @rule(name=_nodes, cordon=st.booleans())
    def a_person_cordons(self, name: str, cordon: bool) -> None:
        """People leave a node alone that is being upgraded, or that an upgrade left cordoned."""
        node = self.cluster.nodes[name]
        fresh = node.state in {S.NONE, S.DONE} or NodeAnnotation.STARTED not in node.annotations
        if node.state in {S.NONE, S.DONE, S.REQUIRED} and fresh:
            self.cluster.change(name, unschedulable=cordon)
            (self.cordoned.add if cordon else self.cordoned.discard)(name)

    @rule(name=_nodes, state=st.sampled_from([S.REQUIRED.value, None]))
    def a_person_tries_a_failed_node_again(self, name: str, state: str | None) -> None:
        if self.cluster.nodes[name].state is S.FAILED:
            self.cluster.label(name, NodeLabel.UPGRADE_STATE, state)

    @rule(name=_nodes)
    def a_machine_is_lost(self, name: str) -> None:
        self.cluster.change(name, ready=False)

    @rule(name=_nodes, behaviour=_habits)
    def a_machine_comes_back(self, name: str, behaviour: NodeBehaviour) -> None:
        self.cluster.come_back(name, behaviour)

    @rule(name=_nodes)
    def upgrades_are_switched_off_and_on(self, name: str) -> None:
        self.operator.switch_off()
        for name_, node in self.cluster.nodes.items():
            assert not node.state
            assert node.unschedulable is (name_ in self.cordoned)

    @invariant()
    def the_agent_is_paused_only_during_the_restart(self) -> None:
        for node in self.cluster.nodes.values():
            paused = NodeLabel.AGENT in node.labels
            assert not paused or node.state is S.POD_RESTART_REQUIRED, node

    def teardown(self) -> None:
        """Once everything is repaired, every node gets the newest driver and is cordoned only if a person cordoned
        it."""
        cluster = self.cluster
        cluster.policy = replace(cluster.policy, paused=False, max_parallel_upgrades=2, max_unavailable="100%")
        cluster.label("node-1", "tier", "first")
        for name in cluster.nodes:
            cluster.label(name, NodeLabel.UPGRADE_SKIP, None)
            cluster.come_back(name, GOOD)
        for _ in range(3):
            self._run_to_the_end()
            for name, node in cluster.nodes.items():
                if node.state is S.FAILED:
                    cluster.label(name, NodeLabel.UPGRADE_STATE, S.REQUIRED.value)
        for name, node in cluster.nodes.items():
            assert node.state is S.DONE, node
            assert node.revision == cluster.revision, node
            assert node.unschedulable is (name in self.cordoned), node
            assert not node.annotations.keys() - {NodeAnnotation.STARTED, NodeAnnotation.STEP_SINCE}, node

    def _run_to_the_end(self) -> None:
        operator = OperatorModel(self.cluster, self.rng)
        for _ in range(1000):
            moment = min(operator.settle(), self.cluster.next_happening)
            if moment == NEVER:
                return
            self.cluster.advance(moment)
        raise AssertionError("it never ends")


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
