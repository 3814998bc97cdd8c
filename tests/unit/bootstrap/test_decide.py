"""When a node is ready for pools, and which obstacle is named when it is not."""

from datetime import timedelta

import msgspec
import pytest

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.examples import NOON, node_state
from gpu_control_plane.api.gpunodestate import Plugin, StepResult, Validation, ValidationStep
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.decide import decide
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import find

LATER = NOON + timedelta(hours=1)


def changed(**status: object) -> GPUNodeState:
    """A node in order but for these fields of its status."""
    state = node_state(cards=1)
    return msgspec.structs.replace(state, status=msgspec.structs.replace(state.status, **status))


def checked(name: str, result: StepResult) -> Validation:
    return Validation(steps=(ValidationStep(name=name, result=result, message="it does not answer"),))


INCOMPLETE = Condition(
    type=NodeCondition.INVENTORY_COMPLETE.value,
    status="False",
    reason=Reason.CARDS_MISSING.value,
    message="One is missing.",
    last_transition_time=NOON,
)


SHARED = Plugin(observed_generation=1, conflicts=("nvidia.com/gpu",))


@pytest.mark.parametrize(
    ("state", "ready", "reason"),
    [
        (changed(), True, Reason.READY),
        (changed(validation=None), True, Reason.READY),
        (changed(validation=checked("driver", StepResult.RUNNING)), True, Reason.READY),
        (changed(validation=checked("plugin", StepResult.FAILED)), True, Reason.READY),
        (changed(monitoring=None), True, Reason.READY),
        (changed(conditions=(INCOMPLETE,)), False, Reason.INVENTORY_INCOMPLETE),
        (changed(driver=None), False, Reason.DRIVER_NOT_READY),
        (changed(validation=checked("driver", StepResult.FAILED)), False, Reason.DRIVER_NOT_READY),
        (changed(toolkit=None), False, Reason.TOOLKIT_NOT_READY),
        (changed(validation=checked("toolkit", StepResult.FAILED)), False, Reason.TOOLKIT_NOT_READY),
        (changed(validation=checked("cuda", StepResult.FAILED)), False, Reason.VALIDATION_FAILED),
        (changed(driver=None, toolkit=None), False, Reason.DRIVER_NOT_READY),
        (changed(plugin=SHARED), False, Reason.CONFLICTING_DEVICE_PLUGIN),
    ],
)
def test_the_first_obstacle_is_named(state: GPUNodeState, ready: bool, reason: Reason) -> None:
    held = _held(state, NodeCondition.READY_FOR_POOLING)
    assert (held.status, held.reason) == (str(ready), reason)


@pytest.mark.parametrize(
    ("state", "kind", "missing"),
    [
        (changed(), NodeCondition.DRIVER_MISSING, False),
        (changed(driver=None), NodeCondition.DRIVER_MISSING, True),
        (changed(validation=checked("driver", StepResult.FAILED)), NodeCondition.DRIVER_MISSING, True),
        (changed(), NodeCondition.TOOLKIT_MISSING, False),
        (changed(toolkit=None), NodeCondition.TOOLKIT_MISSING, True),
        (changed(), NodeCondition.MONITORING_MISSING, False),
        (changed(monitoring=None), NodeCondition.MONITORING_MISSING, True),
        (changed(), NodeCondition.DEGRADED, False),
        (changed(plugin=SHARED), NodeCondition.DEGRADED, True),
    ],
)
def test_what_is_missing_is_said(state: GPUNodeState, kind: NodeCondition, missing: bool) -> None:
    assert _held(state, kind).status == str(missing)


def test_the_words_of_a_failed_check_reach_the_reader() -> None:
    held = _held(changed(validation=checked("cuda", StepResult.FAILED)), NodeCondition.READY_FOR_POOLING)
    assert held.message == "The check of cuda failed: it does not answer"


def test_nothing_is_said_before_inventory_has_spoken() -> None:
    assert decide(changed(conditions=()), LATER) == ()


def test_deciding_again_changes_nothing() -> None:
    first = decide(changed(), LATER)
    state = changed(conditions=(*node_state().status.conditions[:1], *first))
    assert decide(state, LATER + timedelta(hours=1)) == first


def _held(state: GPUNodeState, kind: NodeCondition) -> Condition:
    held = find(decide(state, LATER), kind)
    assert held is not None
    return held
