"""The status of an NVIDIADriver."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpu_control_plane.api.nvidia.names import StackReason
from gpu_control_plane.api.nvidia.status import NodeTrouble, OperandState, StackStatus, State
from gpu_control_plane.operator.drivers.owner import DriverProblem
from gpu_control_plane.operator.drivers.status import DriverStatusInput, driver_status
from gpu_control_plane.operator.stack.readiness import Readiness

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = Readiness(ready=True, desired=2, available=2)
BAD = Readiness(
    ready=False,
    desired=2,
    available=1,
    message="it runs on 1 of 2 nodes",
    troubles=(NodeTrouble(node="n1", reason="ImagePullBackOff"),),
)


def status_input(**more: Any) -> DriverStatusInput:
    return DriverStatusInput(**{"generation": 3, "namespace": "gpu-operator", "now": NOW, **more})


@pytest.mark.parametrize(
    ("observed", "state", "ready", "reason", "says"),
    [
        ({"readiness": {"a": GOOD}, "nodes": 2}, State.READY, True, StackReason.RECONCILED, "2 nodes"),
        ({}, State.READY, True, StackReason.RECONCILED, "No node"),
        ({"asked_for": False}, State.DISABLED, False, StackReason.RECONCILED, "useNvidiaDriverCRD"),
        (
            {"asked_for": False, "problem": DriverProblem(StackReason.RECONCILE_FAILED, "x")},
            State.DISABLED,
            False,
            StackReason.RECONCILED,
            "useNvidiaDriverCRD",
        ),
        (
            {"problem": DriverProblem(StackReason.CONFLICTING_NODE_SELECTOR, "n: a, b")},
            State.NOT_READY,
            False,
            StackReason.CONFLICTING_NODE_SELECTOR,
            "n: a, b",
        ),
        (
            {"problem": DriverProblem(StackReason.RECONCILE_FAILED, "no image"), "readiness": {"a": GOOD}},
            State.NOT_READY,
            False,
            StackReason.RECONCILE_FAILED,
            "no image",
        ),
        (
            {"readiness": {"a": BAD, "b": GOOD}},
            State.NOT_READY,
            False,
            StackReason.DRIVER_NOT_READY,
            "a: n1 (ImagePullBackOff)",
        ),
        (
            {"readiness": {"a": GOOD}, "converged": False},
            State.NOT_READY,
            False,
            StackReason.DRIVER_NOT_READY,
            "latest",
        ),
        ({"unidentified": ["n1"]}, State.NOT_READY, False, StackReason.DRIVER_NOT_READY, "1 node is left out"),
        (
            {"unlabelled": ["n1", "n2"]},
            State.NOT_READY,
            False,
            StackReason.DRIVER_NOT_READY,
            "2 nodes are not labelled with its name yet (n1, n2)",
        ),
    ],
)
def test_state_and_conditions_follow_the_table(
    observed: dict[str, Any], state: State, ready: bool, reason: StackReason, says: str
) -> None:
    status = driver_status(StackStatus(), status_input(**observed))
    conditions = {held.type: held for held in status.conditions}
    assert status.state is state
    assert status.observed_generation == 3
    assert conditions["Ready"].status == ("True" if ready else "False")
    assert conditions["Error"].status == ("False" if ready else "True")
    condition = conditions["Ready" if ready else "Error"]
    assert condition.reason == reason
    assert says in condition.message
    assert {held.observed_generation for held in status.conditions} == {3}


def test_each_daemonset_is_reported() -> None:
    status = driver_status(StackStatus(), status_input(readiness={"b": BAD, "a": GOOD}))
    assert [(held.name, held.state) for held in status.states] == [
        ("a", OperandState.READY),
        ("b", OperandState.NOT_READY),
    ]
    assert status.states[1].nodes == BAD.troubles


def test_times_move_only_with_the_conditions() -> None:
    before = driver_status(StackStatus(), status_input(readiness={"a": GOOD}))
    same = driver_status(before, status_input(readiness={"a": GOOD}, now=NOW + timedelta(hours=1)))
    assert same == before
    worse = driver_status(before, status_input(readiness={"a": BAD}, now=NOW + timedelta(hours=1)))
    assert {held.last_transition_time for held in worse.conditions} == {NOW + timedelta(hours=1)}


def test_fields_without_effect_are_named() -> None:
    status = driver_status(StackStatus(), status_input(unknown=["spec.colour"]))
    assert any("spec.colour" in held.message for held in status.conditions)
