"""Events of a ClusterPolicy or an NVIDIADriver: one for each change."""

from collections.abc import Collection

from gpu_control_plane.api.nvidia.names import StackCondition, StackEvent
from gpu_control_plane.api.nvidia.status import OperandState, StackStatus, State
from gpu_control_plane.kube import EventRecorder, Object
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.operator.stack.apply import ApplyResult

_MOST_NAMED = 5
_LOST = (OperandState.READY, OperandState.NOT_READY)


def record_drift_repaired(
    recorder: EventRecorder, about: Object, result: ApplyResult, *, refused: Collection[str] = ()
) -> None:
    """Record that another writer had changed or deleted objects of the stack. An object that the API server `refused`
    the last time was missing because of that, and not by another writer's change."""
    repaired = sorted(name for name in (*result.created, *result.repaired) if name not in refused)
    if repaired:
        more = f" and {len(repaired) - _MOST_NAMED} more" if len(repaired) > _MOST_NAMED else ""
        names, kind = ", ".join(repaired[:_MOST_NAMED]), about.resource.kind
        note = f"Another writer had changed or removed {names}{more}; all is as the {kind} says."
        recorder.warning(about, StackEvent.DRIFT_REPAIRED, note)


def record_status_change(recorder: EventRecorder, about: Object, old: StackStatus, new: StackStatus) -> None:
    """Record which states of the stack have become ready or not ready, the state of the whole, and fields without
    effect."""
    _record_unknown_fields(recorder, about, old, new)
    before = {state.name: state.state for state in old.states}
    for state in new.states:
        was = before.get(state.name)
        if was is state.state:
            continue
        if state.state is OperandState.READY and state.desired:
            recorder.normal(
                about, StackEvent.OPERAND_READY, f"{state.name} is ready on {counted(state.ready, 'node')}."
            )
        elif state.state is OperandState.FAILED or (was, state.state) == _LOST:
            nodes = ", ".join(f"{trouble.node} ({trouble.reason})" for trouble in state.nodes[:_MOST_NAMED])
            note = f"{state.name}: {'; '.join(filter(None, (state.message, nodes)))}"
            recorder.warning(about, StackEvent.OPERAND_NOT_READY, note)
    if old.state is new.state:
        return
    if new.state is State.IGNORED:
        recorder.warning(about, StackEvent.IGNORED, _first_message(new))
    elif new.state is State.READY:
        recorder.normal(about, StackEvent.STATE_CHANGED, f"ready: {_first_message(new)}")
    else:
        recorder.warning(about, StackEvent.STATE_CHANGED, f"{new.state}: {_first_message(new)}")


def record_other_operator_active(recorder: EventRecorder, about: Object, message: str) -> None:
    recorder.warning(about, StackEvent.OTHER_OPERATOR_ACTIVE, message)


def record_taken_over(recorder: EventRecorder, about: Object) -> None:
    recorder.normal(about, StackEvent.TAKEN_OVER, "NVIDIA's operator is gone; this one is active now.")


def _record_unknown_fields(recorder: EventRecorder, about: Object, old: StackStatus, new: StackStatus) -> None:
    known, unknown = (find(status.conditions, StackCondition.UNKNOWN_FIELDS) for status in (old, new))
    if unknown is not None and (known is None or known.message != unknown.message):
        recorder.warning(about, StackEvent.UNKNOWN_FIELDS, unknown.message)


def _first_message(status: StackStatus) -> str:
    return next((held.message for held in status.conditions if held.message), "")
