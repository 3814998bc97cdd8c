"""What people are told of a ClusterPolicy or an NVIDIADriver: once for each change."""

from collections.abc import Collection

from gpu_control_plane.api.nvidia.names import StackCondition, StackEvent
from gpu_control_plane.api.nvidia.status import OperandState, StackStatus, State
from gpu_control_plane.kube import EventRecorder, Object
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.operator.stack.apply import Applied

_NAMED = 5
_LOST = (OperandState.READY, OperandState.NOT_READY)


def tell_repaired(recorder: EventRecorder, about: Object, applied: Applied, *, refused: Collection[str] = ()) -> None:
    """Tell that another hand had been on objects of the stack. What the API server `refused` the last time was not
    there because of that, and nobody has touched it."""
    mended = sorted(name for name in (*applied.created, *applied.repaired) if name not in refused)
    if mended:
        more = f" and {len(mended) - _NAMED} more" if len(mended) > _NAMED else ""
        names, kind = ", ".join(mended[:_NAMED]), about.resource.kind
        note = f"Somebody had changed or removed {names}{more}; all is as the {kind} says."
        recorder.warning(about, StackEvent.DRIFT_REPAIRED, note)


def tell_status(recorder: EventRecorder, about: Object, old: StackStatus, new: StackStatus) -> None:
    """Tell of states of the stack that have become ready or are no longer, of the whole, and of fields that have no
    effect."""
    _tell_unknown(recorder, about, old, new)
    before = {state.name: state.state for state in old.states}
    for state in new.states:
        was = before.get(state.name)
        if was is state.state:
            continue
        if state.state is OperandState.READY and state.desired:
            recorder.normal(about, StackEvent.OPERAND_READY, f"{state.name} is ready on {state.ready} nodes.")
        elif state.state is OperandState.FAILED or (was, state.state) == _LOST:
            nodes = ", ".join(f"{trouble.node} ({trouble.reason})" for trouble in state.nodes[:_NAMED])
            note = f"{state.name}: {'; '.join(filter(None, (state.message, nodes)))}"
            recorder.warning(about, StackEvent.OPERAND_NOT_READY, note)
    if old.state is new.state:
        return
    if new.state is State.IGNORED:
        recorder.warning(about, StackEvent.IGNORED, _why(new))
    elif new.state is State.READY:
        recorder.normal(about, StackEvent.STATE_CHANGED, f"ready: {_why(new)}")
    else:
        recorder.warning(about, StackEvent.STATE_CHANGED, f"{new.state}: {_why(new)}")


def tell_rival(recorder: EventRecorder, about: Object, message: str) -> None:
    recorder.warning(about, StackEvent.OTHER_OPERATOR_ACTIVE, message)


def tell_taken_over(recorder: EventRecorder, about: Object) -> None:
    recorder.normal(about, StackEvent.TAKEN_OVER, "NVIDIA's operator is gone; this one is in charge now.")


def _tell_unknown(recorder: EventRecorder, about: Object, old: StackStatus, new: StackStatus) -> None:
    known, unknown = (find(status.conditions, StackCondition.UNKNOWN_FIELDS) for status in (old, new))
    if unknown is not None and (known is None or known.message != unknown.message):
        recorder.warning(about, StackEvent.UNKNOWN_FIELDS, unknown.message)


def _why(status: StackStatus) -> str:
    return next((held.message for held in status.conditions if held.message), "")
