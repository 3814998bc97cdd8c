"""A node whose upgrade failed, or that is lost in the middle of it, is tried again, but only for a reason."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.names import NodeAnnotation, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Drain, PodDeletion, WaitForCompletion
from gpu_control_plane.operator.upgrade.actions import NO_DRIVER, NODE_LOST, NodePatch, Wait
from gpu_control_plane.operator.upgrade.node_view import UpgradeLimits
from gpu_control_plane.operator.upgrade.step import step
from unit.operator.upgrade.builders import CRASHING, CURRENT, NOW, POLICY, SKIP, STALE, TRAINING, ago, cordoned

S = UpgradeState


@pytest.mark.parametrize(
    ("failed_with", "rest", "expected"),
    [
        ("r1", {}, S.REQUIRED),
        ("r2", {}, None),
        ("r1", {"wanted": ""}, None),
        (NO_DRIVER, {}, S.REQUIRED),
        (NO_DRIVER, {"wanted": ""}, None),
        ("r1", {"labels": SKIP}, None),
        ("r1", {"ready": False}, None),
        (NODE_LOST, {}, S.REQUIRED),
        (NODE_LOST, {"wanted": ""}, S.REQUIRED),
        (NODE_LOST, {"ready": False}, None),
    ],
    ids=[
        "another driver is there",
        "the same driver",
        "the driver is not known",
        "there was no driver, and there is one now",
        "there is still none",
        "to be left alone",
        "out of reach",
        "it was lost and is back",
        "it was lost and is back, whatever the driver",
        "it is still lost",
    ],
)
def test_a_failed_node_is_tried_once_with_each_driver_and_when_it_is_back(
    failed_with: str, rest: dict[str, object], expected: UpgradeState | None
) -> None:
    times = ago(NodeAnnotation.STARTED, 900) | {NodeAnnotation.FAILED_WITH: failed_with, NodeAnnotation.FAILURE: "why"}
    given: dict[str, object] = {"wanted": "r2", "annotations": times, **rest}
    node = cordoned(S.FAILED, STALE, **given)
    found = step(node, POLICY, NOW)
    if expected is None:
        assert found == Wait(reason="why")
        return
    assert isinstance(found, NodePatch)
    assert found.state is expected
    assert (found.annotations[NodeAnnotation.FAILED_WITH], found.annotations[NodeAnnotation.FAILURE]) == (None, None)
    assert found.unschedulable is None


def test_what_a_node_failed_with_is_noted() -> None:
    node = cordoned(S.POD_RESTART_REQUIRED, CRASHING, wanted="r2")
    for ready, noted in ((True, "r2"), (False, NODE_LOST)):
        times = ago(NodeAnnotation.STEP_SINCE, 9) | ({} if ready else {NodeAnnotation.LOST_SINCE: str(int(NOW))})
        found = step(replace(node, ready=ready, annotations=times), POLICY, NOW)
        assert isinstance(found, NodePatch)
        assert (found.state, found.annotations[NodeAnnotation.FAILED_WITH]) == (S.FAILED, noted)


def test_what_failed_under_nvidias_operator_is_not_tried_with_the_same_driver() -> None:
    found = step(cordoned(S.FAILED, STALE, wanted="r2"), POLICY, NOW)
    assert found == NodePatch(note="", annotations={NodeAnnotation.FAILED_WITH: "r2"})


UNHURRIED = replace(POLICY, pod_deletion=PodDeletion(timeout_seconds=0))


@pytest.mark.parametrize("state", [S.WAIT_FOR_JOBS_REQUIRED, S.POD_DELETION_REQUIRED, S.DRAIN_REQUIRED])
def test_a_lost_node_gives_up_its_slot_however_long_its_pods_may_stay(state: UpgradeState) -> None:
    policy = replace(
        UNHURRIED,
        wait_for_completion=WaitForCompletion(pod_selector="app=train"),
        drain=Drain(enable=True, timeout_seconds=0),
    )
    node = cordoned(state, STALE, pods=(TRAINING,), leaving={TRAINING.metadata.uid: NOW}, ready=False)
    found = step(node, policy, NOW)
    assert found == NodePatch(note="", annotations={NodeAnnotation.LOST_SINCE: str(int(NOW))})
    away = replace(node, annotations={**node.annotations, NodeAnnotation.LOST_SINCE: str(int(NOW))})
    waiting = step(away, policy, NOW + 1)
    assert isinstance(waiting, Wait)
    assert waiting.until == NOW + 900
    failed = step(away, policy, NOW + 900)
    assert isinstance(failed, NodePatch)
    assert (failed.state, failed.annotations[NodeAnnotation.FAILED_WITH]) == (S.FAILED, NODE_LOST)
    assert step(replace(away, ready=True), policy, NOW + 900) == NodePatch(
        note="", annotations={NodeAnnotation.LOST_SINCE: None}
    )


def test_how_long_a_node_may_be_lost_is_a_setting() -> None:
    limits = UpgradeLimits(lost_node_timeout=timedelta(minutes=2))
    policy = replace(UNHURRIED, drain=Drain(enable=True, timeout_seconds=0))
    leaving = {TRAINING.metadata.uid: NOW}
    node = cordoned(S.DRAIN_REQUIRED, STALE, pods=(TRAINING,), leaving=leaving, ready=False, limits=limits)
    lost = replace(node, annotations={**node.annotations, NodeAnnotation.LOST_SINCE: str(int(NOW))})
    waiting = step(lost, policy, NOW + 119)
    assert isinstance(waiting, Wait)
    assert waiting.until == NOW + 120
    failed = step(lost, policy, NOW + 120)
    assert isinstance(failed, NodePatch)
    assert failed.state is S.FAILED
    assert failed.annotations[NodeAnnotation.FAILURE] == "the node has not been ready for 2m"


def test_a_node_that_only_has_to_be_uncordoned_need_not_be_ready() -> None:
    found = step(cordoned(S.UNCORDON_REQUIRED, CURRENT, ready=False), POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.state is S.DONE
