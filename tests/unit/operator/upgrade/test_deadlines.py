"""How long a step may take: no node fails because its operator was absent, and none keeps its slot for ever."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.names import NodeAnnotation, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Drain, PodDeletion, UpgradePolicy, WaitForCompletion
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.operator.upgrade.actions import DeleteDriverPod, EvictPods, NodePatch, UpgradeAction, Wait
from gpu_control_plane.operator.upgrade.node_view import AgentView, DriverPod, NodeView
from gpu_control_plane.operator.upgrade.step import step
from unit.operator.upgrade.builders import (
    CURRENT,
    NOW,
    ORPHAN,
    POLICY,
    STALE,
    TRAINING,
    UNREADY,
    ago,
    cordoned,
    gpu_pod,
)
from unit.operator.upgrade.cluster_model import NEVER, ClusterModel, NodeBehaviour
from unit.operator.upgrade.operator_model import Killed, OperatorModel

S = UpgradeState
HOUR = 3600.0
LIMIT = 300
DRAINING = UpgradePolicy(auto_upgrade=True, drain=Drain(enable=True))
POD = gpu_pod()
UID = POD.metadata.uid
EMPTYING = (S.POD_DELETION_REQUIRED, S.DRAIN_REQUIRED)


def begun(state: UpgradeState, seconds: float, *drivers: DriverPod, renewals: int = 0, **rest: object) -> NodeView:
    """A node whose step began so long ago."""
    count = {NodeAnnotation.RENEWALS: str(renewals)} if renewals else {}
    return cordoned(state, *(drivers or (STALE,)), annotations=ago(NodeAnnotation.STEP_SINCE, seconds) | count, **rest)


def leaving(pod: Pod, until: float) -> Pod:
    """The pod with a grace period that ends so many seconds from now."""
    ends = datetime.fromtimestamp(NOW + until, UTC)
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp=ends))


def after(node: NodeView, change: NodePatch) -> NodeView:
    held: dict[str, str | None] = {**node.annotations, **{str(key): value for key, value in change.annotations.items()}}
    return replace(node, annotations={key: value for key, value in held.items() if value is not None})


def failed(found: UpgradeAction) -> bool:
    return isinstance(found, NodePatch) and found.state is S.FAILED


@pytest.mark.parametrize("state", EMPTYING)
def test_after_an_absence_of_the_operator_pods_are_evicted_before_the_upgrade_fails(state: UpgradeState) -> None:
    node = begun(state, HOUR, pods=(POD,))
    renewal = step(node, DRAINING, NOW)
    assert isinstance(renewal, NodePatch)
    assert renewal.annotations == {NodeAnnotation.STEP_SINCE: str(int(NOW)), NodeAnnotation.RENEWALS: "1"}
    asking = step(after(node, renewal), DRAINING, NOW)
    assert isinstance(asking, EvictPods)
    assert asking.pods == (POD,)


@pytest.mark.parametrize(
    ("asked", "renewals", "expected"),
    [
        (None, 0, NOW),
        (None, 2, NOW),
        (None, 3, None),
        (NOW - 100, 0, NOW - 100),
        (NOW - 100, 3, None),
        (NOW - 150, 0, None),
        (NOW - 300, 0, None),
    ],
    ids=[
        "no pod was asked to leave",
        "no pod was asked to leave, the third time",
        "no pod was asked to leave, and the time was renewed often enough",
        "asked late",
        "asked late, and the time was renewed often enough",
        "asked for half of the time",
        "asked all the time",
    ],
)
@pytest.mark.parametrize("state", EMPTYING)
def test_the_time_starts_anew_if_the_step_was_not_carried_out_for_most_of_it(
    state: UpgradeState, asked: float | None, renewals: int, expected: float | None
) -> None:
    policy = replace(POLICY, drain=DRAINING.drain) if state is S.DRAIN_REQUIRED else POLICY
    found = step(begun(state, LIMIT, renewals=renewals, pods=(POD,), asked_since=asked), policy, NOW)
    if expected is None:
        assert failed(found)
        return
    assert isinstance(found, NodePatch)
    assert found.state is None
    assert found.annotations[NodeAnnotation.STEP_SINCE] == str(int(expected))
    assert found.annotations[NodeAnnotation.RENEWALS] == str(renewals + 1)


@pytest.mark.parametrize(
    ("grace", "asked", "until"),
    [
        (10, NOW - 20, 40),
        (10, None, 40),
        (3000, NOW - 20, 280),
        (3000, None, 300),
        (3000, NOW - 300, None),
        (-31, NOW - 100, None),
        (-31, None, None),
    ],
    ids=[
        "asked late, and going",
        "asked by another process, and going",
        "asked late, going slowly",
        "asked by another process, going slowly",
        "asked in time, going too slowly",
        "asked late, and should be gone",
        "asked by another process, and should be gone",
    ],
)
def test_pods_that_are_leaving_have_their_own_time_but_no_more_than_the_limit(
    grace: float, asked: float | None, until: float | None
) -> None:
    going = {UID: asked} if asked is not None else {}
    node = begun(S.POD_DELETION_REQUIRED, LIMIT, pods=(leaving(POD, grace),), leaving=going, asked_since=asked)
    found = step(node, POLICY, NOW)
    if until is None:
        assert failed(found)
    else:
        assert found == Wait(reason="work/train-1 are leaving", until=NOW + until)


def test_an_evicted_pod_is_waited_for_before_the_watch_shows_its_deletion() -> None:
    node = begun(S.POD_DELETION_REQUIRED, LIMIT, pods=(POD,), leaving={UID: NOW - 1}, asked_since=NOW - LIMIT)
    assert step(node, POLICY, NOW) == Wait(reason="work/train-1 are leaving", until=NOW + 29)


def test_pods_that_appear_one_after_the_other_do_not_extend_the_deadline() -> None:
    late = gpu_pod("late")
    node = begun(S.POD_DELETION_REQUIRED, LIMIT, pods=(leaving(POD, 20), late), asked_since=NOW - LIMIT)
    assert failed(step(node, POLICY, NOW))


def test_without_a_limit_there_is_nothing_to_renew() -> None:
    node = begun(S.POD_DELETION_REQUIRED, HOUR, pods=(POD,))
    assert isinstance(step(node, replace(POLICY, pod_deletion=PodDeletion(timeout_seconds=0)), NOW), EvictPods)


def test_the_time_to_wait_for_jobs_is_not_renewed() -> None:
    policy = replace(POLICY, wait_for_completion=WaitForCompletion(pod_selector="app=train", timeout_seconds=60))
    node = cordoned(S.WAIT_FOR_JOBS_REQUIRED, STALE, pods=(TRAINING,), annotations=ago(NodeAnnotation.WAIT_START, HOUR))
    found = step(node, policy, NOW)
    assert isinstance(found, NodePatch)
    assert found.state is S.POD_DELETION_REQUIRED


@pytest.mark.parametrize("driver", [STALE, ORPHAN], ids=["old", "without an owner"])
def test_a_driver_pod_is_replaced_by_the_next_operator_after_the_deadline(driver: DriverPod) -> None:
    node = begun(S.POD_RESTART_REQUIRED, HOUR, driver)
    renewal = step(node, POLICY, NOW)
    assert isinstance(renewal, NodePatch)
    assert (renewal.state, renewal.annotations[NodeAnnotation.RENEWALS]) == (None, "1")
    assert isinstance(step(after(node, renewal), POLICY, NOW), DeleteDriverPod)


def test_our_agent_has_its_minute_also_after_an_absence_of_the_operator() -> None:
    labels = {"gpu.deckhouse.io/agent": "paused-for-driver-upgrade"}
    node = begun(S.POD_RESTART_REQUIRED, HOUR, STALE, agent=AgentView(), labels=labels)
    renewal = step(node, POLICY, NOW)
    assert isinstance(renewal, NodePatch)
    again = step(after(node, renewal), POLICY, NOW)
    assert not isinstance(again, DeleteDriverPod)


@pytest.mark.parametrize(
    "node",
    [
        begun(S.POD_RESTART_REQUIRED, HOUR, UNREADY),
        begun(S.POD_RESTART_REQUIRED, HOUR, replace(STALE, leaving=True)),
        begun(S.POD_RESTART_REQUIRED, HOUR, ORPHAN, wanted=""),
        begun(S.POD_RESTART_REQUIRED, HOUR, STALE, asked_since=NOW - 1000),
        begun(S.POD_RESTART_REQUIRED, HOUR, STALE, renewals=3),
    ],
    ids=["new, and not ready", "leaving", "no DaemonSet brings another", "cannot be deleted", "often enough"],
)
def test_the_time_is_not_renewed_for_a_driver_that_only_has_to_become_ready(node: NodeView) -> None:
    assert failed(step(node, POLICY, NOW))


def test_another_state_starts_with_all_its_renewals() -> None:
    for node in (
        begun(S.POD_DELETION_REQUIRED, 9, renewals=3),
        begun(S.POD_DELETION_REQUIRED, HOUR, renewals=3, pods=(POD,)),
        begun(S.UNCORDON_REQUIRED, 9, CURRENT, renewals=3),
    ):
        found = step(node, POLICY, NOW)
        assert isinstance(found, NodePatch)
        assert found.annotations[NodeAnnotation.RENEWALS] is None


def fates(behaviour: Mapping[str, NodeBehaviour], *, writes: int, away: float) -> tuple[ClusterModel, int]:
    """A rollout under operators that make so many writes each, and are away for long after that; and their number."""
    cluster = ClusterModel(replace(POLICY, max_parallel_upgrades=1, max_unavailable="100%"), behaviour.items())
    rng = random.Random(4)
    OperatorModel(cluster, rng).settle()
    cluster.publish_driver()
    for lives in range(1, 1000):
        operator = OperatorModel(cluster, rng, writes=writes)
        try:
            while (moment := min(operator.settle(), cluster.next_happening)) < NEVER:
                cluster.advance(moment)
        except Killed:
            cluster.advance(cluster.clock + away)
        else:
            return cluster, lives
    raise AssertionError("it never ends")


@pytest.mark.parametrize("away", [2.0, 100.0, 400.0, 7200.0])
def test_nodes_are_upgraded_by_operators_that_are_absent_most_of_the_time(away: float) -> None:
    cluster, lives = fates(
        {"a": NodeBehaviour(), "b": NodeBehaviour(budget=120.0), "c": NodeBehaviour(agent=True)}, writes=3, away=away
    )
    assert lives > 3
    assert {name: node.state for name, node in cluster.nodes.items()} == dict.fromkeys("abc", S.DONE)
    assert not cluster.ever_failed


@pytest.mark.parametrize("writes", [1, 2, 3])
@pytest.mark.parametrize("away", [2.0, 100.0, 400.0, 7200.0])
def test_a_pod_that_stays_does_not_block_others_however_often_operators_die(writes: int, away: float) -> None:
    cluster, _lives = fates({"a": NodeBehaviour(budget=NEVER)}, writes=writes, away=away)
    assert cluster.nodes["a"].state is S.FAILED
    assert cluster.holding() == 0
