"""Events where NVIDIA's own CRD keeps little of a status: one for each change, none at a restart."""

import msgspec

from gpu_control_plane.api.nvidia.status import OperandState, StackStatus, State, StateReport
from gpu_control_plane.operator.status_writer import last_known

KEPT = StackStatus(state=State.READY)
"""What the schema leaves of any status with that state."""


def status(state: OperandState) -> StackStatus:
    return StackStatus(state=State.READY, states=(StateReport(name="state-dcgm", state=state, desired=2, ready=2),))


def test_a_restart_changes_nothing() -> None:
    assert last_known(KEPT, None, status(OperandState.READY)).states == status(OperandState.READY).states


def test_a_state_that_changed_since_is_a_change() -> None:
    told = status(OperandState.NOT_READY)
    assert last_known(KEPT, told, status(OperandState.READY)) == told


def test_everything_of_a_new_policy_is_a_change() -> None:
    new = msgspec.structs.replace(KEPT, state=StackStatus().state)
    assert last_known(new, None, status(OperandState.READY)) == new
