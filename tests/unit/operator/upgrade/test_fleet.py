"""Two hundred nodes, a tenth of everything going wrong, and an operator that dies after every write."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import settings
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Drain, PodDeletion, UpgradePolicy
from gpu_control_plane.operator.upgrade.rollout import scaled_value
from unit.operator.upgrade.builders import gpu_pod
from unit.operator.upgrade.cluster_model import NEVER, ClusterModel, NodeBehaviour
from unit.operator.upgrade.operator_model import Killed, OperatorModel

S = UpgradeState
QUICK = settings.get_current_profile_name() == "quick"
"""`make test-fast` tries a smaller fleet."""
NODES, EACH = (60, 3) if QUICK else (200, 10)
"""How many there are, and how many of each kind of trouble."""
POLICY = UpgradePolicy(auto_upgrade=True, max_parallel_upgrades=20, max_unavailable="60%")
TROUBLE = {
    "driver-stuck": NodeBehaviour(build=NEVER),
    "driver-crashes": NodeBehaviour(crashes=True),
    "budget-refuses": NodeBehaviour(budget=NEVER),
    "lost-while-emptied": NodeBehaviour(lost_at=S.POD_DELETION_REQUIRED),
    "lost-while-restarted": NodeBehaviour(lost_at=S.POD_RESTART_REQUIRED),
    "never-validated": NodeBehaviour(check=NEVER),
    "without-validator": NodeBehaviour(validator=False),
}
"""What makes an upgrade fail."""
NUISANCE = {
    "budget-refuses-a-while": NodeBehaviour(budget=120.0),
    "agent-validates": NodeBehaviour(validator=False, agent=True),
    "agent-lets-go": NodeBehaviour(agent=True),
    "agent-holds-on": NodeBehaviour(agent=True, deaf=True),
    "slow": NodeBehaviour(build=900.0, check=400.0),
}
"""What does not."""
SKIPPED = "skipped"
CORDONED = "cordoned-before"
BARE = "bare-pod"
RESTART = 3.0
"""Seconds until another process has taken over."""


def names(kind: str) -> list[str]:
    return [f"{kind}-{number}" for number in range(EACH)]


def fleet(policy: UpgradePolicy = POLICY) -> ClusterModel:
    kinds = {**TROUBLE, **NUISANCE, SKIPPED: NodeBehaviour(), CORDONED: NodeBehaviour(), BARE: NodeBehaviour()}
    nodes = [(name, behaviour) for kind, behaviour in kinds.items() for name in names(kind)]
    nodes += [(f"good-{number}", NodeBehaviour()) for number in range(NODES - len(nodes))]
    cluster = ClusterModel(policy, nodes)
    for name in names(SKIPPED):
        cluster.label(name, NodeLabel.UPGRADE_SKIP, "true")
    for name in names(CORDONED):
        cluster.change(name, unschedulable=True)
    for name in names(BARE):
        pod = gpu_pod("bare", owner=None, node=name)
        cluster.change(name, pods={pod.metadata.uid: pod})
    return cluster


def lives(cluster: ClusterModel, rng: random.Random, writes: int | None, *, stale: bool) -> Iterator[OperatorModel]:
    while True:
        yield OperatorModel(cluster, rng, writes=writes, stale=stale)


def run_to_the_end(cluster: ClusterModel, *, writes: int | None = None, stale: bool = False, seed: int = 1) -> int:
    """Until nothing would ever happen again; the number of lives it took."""
    rng = random.Random(seed)
    for count, operator in enumerate(lives(cluster, rng, writes, stale=stale), start=1):
        try:
            while True:
                until = operator.settle()
                moment = min(until, cluster.next_happening)
                if moment == NEVER:
                    return count
                cluster.advance(moment)
        except Killed:
            cluster.advance(cluster.clock + RESTART)
    raise AssertionError


@pytest.mark.parametrize(
    ("writes", "stale"),
    [(None, False), (1, False), (7, False), (None, True), (3, True)],
    ids=["one life", "killed after every write", "killed now and then", "old news", "old news and killed"],
)
def test_each_kind_of_node_ends_in_its_state_with_a_reason(writes: int | None, stale: bool) -> None:
    cluster = fleet()
    run_to_the_end(cluster)
    assert {node.state for node in cluster.nodes.values()} == {S.DONE}
    cluster.publish_driver()
    lives = run_to_the_end(cluster, writes=writes, stale=stale)
    assert writes is None or lives > NODES / writes
    failed = {name for kind in (*TROUBLE, BARE) for name in names(kind)}
    skipped = set(names(SKIPPED))
    for name, node in cluster.nodes.items():
        expected = S.FAILED if name in failed else S.REQUIRED if name in skipped else S.DONE
        assert node.state is expected, name
        assert (NodeAnnotation.FAILURE in node.annotations) is (name in failed), name
        assert node.unschedulable is (name in failed or name in names(CORDONED)), name
        assert NodeLabel.AGENT not in node.labels, name
    assert cluster.holding() == 0
    assert cluster.ever_failed == failed
    assert not cluster.touched & (skipped | set(names(BARE)))


def test_failed_nodes_are_done_once_they_are_repaired_and_tried_again() -> None:
    cluster = fleet()
    run_to_the_end(cluster)
    cluster.publish_driver()
    run_to_the_end(cluster)
    for name, node in cluster.nodes.items():
        if node.state is S.FAILED:
            driver = replace(node.driver, ready=True, restarts=0, leaving=False) if node.driver else None
            cluster.change(
                name, behaviour=NodeBehaviour(), ready=True, driver=driver, refuses_until=0.0, validated=True, pods={}
            )
            cluster.label(name, NodeLabel.UPGRADE_STATE, S.REQUIRED.value)
        cluster.label(name, NodeLabel.UPGRADE_SKIP, None)
    run_to_the_end(cluster, writes=1)
    for name, node in cluster.nodes.items():
        assert node.state is S.DONE, name
        assert node.revision == cluster.revision, name
        assert node.unschedulable is (name in names(CORDONED)), name
        assert NodeAnnotation.FAILURE not in node.annotations, name


@pytest.mark.parametrize("writes", [None, 1], ids=["one life", "killed after every write"])
def test_another_driver_is_tried_on_nodes_that_failed_and_the_same_one_is_not(writes: int | None) -> None:
    cluster = fleet()
    run_to_the_end(cluster)
    cluster.publish_driver()
    run_to_the_end(cluster)
    failed = {name for name, node in cluster.nodes.items() if node.state is S.FAILED}
    before = {name: cluster.nodes[name].annotations for name in failed}
    cluster.advance(cluster.clock + 86400)
    run_to_the_end(cluster, writes=writes)
    assert {name: cluster.nodes[name].annotations for name in failed} == before
    for kind in ("driver-stuck", "driver-crashes", "never-validated"):
        for name in names(kind):
            cluster.change(name, behaviour=NodeBehaviour())
    cluster.publish_driver()
    run_to_the_end(cluster, writes=writes)
    for kind in ("driver-stuck", "driver-crashes", "never-validated"):
        for name in names(kind):
            node = cluster.nodes[name]
            assert (node.state, node.unschedulable, node.revision) == (S.DONE, False, 3), name
    for name in names("budget-refuses"):
        assert cluster.nodes[name].state is S.FAILED, name
    assert cluster.holding() == 0


@pytest.mark.parametrize("writes", [None, 1], ids=["one life", "killed after every write"])
def test_lost_nodes_do_not_block_others_although_their_pods_may_stay_for_ever(writes: int | None) -> None:
    policy = UpgradePolicy(
        auto_upgrade=True,
        max_parallel_upgrades=1,
        max_unavailable="50%",
        pod_deletion=PodDeletion(timeout_seconds=0),
    )
    lost = [f"a-lost-{number}" for number in range(3)]
    good = [f"good-{number}" for number in range(9)]
    behaviour = {name: NodeBehaviour(lost_at=S.POD_DELETION_REQUIRED) for name in lost} | dict.fromkeys(
        good, NodeBehaviour()
    )
    cluster = ClusterModel(policy, behaviour.items())
    run_to_the_end(cluster)
    cluster.publish_driver()
    run_to_the_end(cluster, writes=writes)
    assert {cluster.nodes[name].state for name in good} == {S.DONE}
    assert {cluster.nodes[name].state for name in lost} == {S.FAILED}
    assert cluster.holding() == 0
    for name in lost:
        cluster.come_back(name, NodeBehaviour())
    run_to_the_end(cluster, writes=writes)
    assert {node.state for node in cluster.nodes.values()} == {S.DONE}
    assert not any(node.unschedulable for node in cluster.nodes.values())


@pytest.mark.parametrize("stale", [False, True], ids=["fresh news", "old news"])
def test_no_more_nodes_than_allowed_are_out_of_service(stale: bool) -> None:
    """Without a limit for nodes in progress, that for nodes out of service holds; the model checks it."""
    policy = UpgradePolicy(auto_upgrade=True, max_parallel_upgrades=0, max_unavailable="7%")
    cluster = ClusterModel(
        policy, [(f"good-{number}", NodeBehaviour(agent=number % 2 == 0)) for number in range(NODES)]
    )
    for number in range(EACH):
        cluster.change(f"good-{number}", unschedulable=True)
    run_to_the_end(cluster)
    cluster.publish_driver()
    run_to_the_end(cluster, writes=25, stale=stale)
    assert {node.state for node in cluster.nodes.values()} == {S.DONE}
    assert cluster.most_out == scaled_value(NODES, "7%") == (5 if QUICK else 14)


def test_a_drain_empties_what_eviction_could_not() -> None:
    cluster = fleet(
        UpgradePolicy(
            auto_upgrade=True, max_parallel_upgrades=0, max_unavailable="60%", drain=Drain(enable=True, force=True)
        )
    )
    run_to_the_end(cluster)
    cluster.publish_driver()
    run_to_the_end(cluster, writes=1)
    assert {cluster.nodes[name].state for name in names(BARE)} == {S.DONE}
    assert {cluster.nodes[name].state for name in names("budget-refuses")} == {S.FAILED}


def test_switching_off_during_an_upgrade_leaves_nothing_behind() -> None:
    cluster = fleet()
    run_to_the_end(cluster)
    cluster.publish_driver()
    operator = OperatorModel(cluster, random.Random(2))
    operator.settle()
    cluster.advance(cluster.clock + 100)
    operator.settle()
    assert cluster.holding() > 0
    operator.switch_off()
    for name, node in cluster.nodes.items():
        assert not node.state, name
        assert node.unschedulable is (name in names(CORDONED)), name
        assert NodeLabel.AGENT not in node.labels, name
        assert not node.annotations, name
