"""What an NVIDIADriver says of itself."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpu_control_plane.api.nvidia.names import StackReason
from gpu_control_plane.api.nvidia.status import NodeTrouble, OperandState, StackStatus, State
from gpu_control_plane.operator.drivers.owner import Trouble
from gpu_control_plane.operator.drivers.status import Picture, driver_status
from gpu_control_plane.operator.stack.readiness import Standing

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = Standing(ready=True, desired=2, available=2)
BAD = Standing(
    ready=False,
    desired=2,
    available=1,
    message="it runs on 1 of 2 nodes",
    troubles=(NodeTrouble(node="n1", reason="ImagePullBackOff"),),
)


def picture(**more: Any) -> Picture:
    return Picture(**{"generation": 3, "namespace": "gpu-operator", "now": NOW, **more})


@pytest.mark.parametrize(
    ("seen", "state", "ready", "reason", "says"),
    [
        ({"standings": {"a": GOOD}, "nodes": 2}, State.READY, True, StackReason.RECONCILED, "2 nodes"),
        ({}, State.READY, True, StackReason.RECONCILED, "No node"),
        ({"asked_for": False}, State.DISABLED, False, StackReason.RECONCILED, "useNvidiaDriverCRD"),
        (
            {"asked_for": False, "trouble": Trouble(StackReason.RECONCILE_FAILED, "x")},
            State.DISABLED,
            False,
            StackReason.RECONCILED,
            "useNvidiaDriverCRD",
        ),
        (
            {"trouble": Trouble(StackReason.CONFLICTING_NODE_SELECTOR, "n: a, b")},
            State.NOT_READY,
            False,
            StackReason.CONFLICTING_NODE_SELECTOR,
            "n: a, b",
        ),
        (
            {"trouble": Trouble(StackReason.RECONCILE_FAILED, "no image"), "standings": {"a": GOOD}},
            State.NOT_READY,
            False,
            StackReason.RECONCILE_FAILED,
            "no image",
        ),
        (
            {"standings": {"a": BAD, "b": GOOD}},
            State.NOT_READY,
            False,
            StackReason.DRIVER_NOT_READY,
            "a: n1 (ImagePullBackOff)",
        ),
        (
            {"standings": {"a": GOOD}, "converged": False},
            State.NOT_READY,
            False,
            StackReason.DRIVER_NOT_READY,
            "latest",
        ),
        ({"left_out": ["n1"]}, State.NOT_READY, False, StackReason.DRIVER_NOT_READY, "1 node is (n1) left out"),
        ({"unlabelled": ["n1", "n2"]}, State.NOT_READY, False, StackReason.DRIVER_NOT_READY, "2 nodes are (n1, n2)"),
    ],
)
def test_state_and_conditions_follow_the_table(
    seen: dict[str, Any], state: State, ready: bool, reason: StackReason, says: str
) -> None:
    status = driver_status(StackStatus(), picture(**seen))
    conditions = {held.type: held for held in status.conditions}
    assert status.state is state
    assert status.observed_generation == 3
    assert conditions["Ready"].status == ("True" if ready else "False")
    assert conditions["Error"].status == ("False" if ready else "True")
    told = conditions["Ready" if ready else "Error"]
    assert told.reason == reason
    assert says in told.message
    assert {held.observed_generation for held in status.conditions} == {3}


def test_each_daemonset_is_reported() -> None:
    status = driver_status(StackStatus(), picture(standings={"b": BAD, "a": GOOD}))
    assert [(held.name, held.state) for held in status.states] == [
        ("a", OperandState.READY),
        ("b", OperandState.NOT_READY),
    ]
    assert status.states[1].nodes == BAD.troubles


def test_times_move_only_with_the_conditions() -> None:
    before = driver_status(StackStatus(), picture(standings={"a": GOOD}))
    same = driver_status(before, picture(standings={"a": GOOD}, now=NOW + timedelta(hours=1)))
    assert same == before
    worse = driver_status(before, picture(standings={"a": BAD}, now=NOW + timedelta(hours=1)))
    assert {held.last_transition_time for held in worse.conditions} == {NOW + timedelta(hours=1)}


def test_fields_without_effect_are_named() -> None:
    status = driver_status(StackStatus(), picture(unknown=["spec.colour"]))
    assert any("spec.colour" in held.message for held in status.conditions)
