"""What people are told of an NVIDIADriver: once for each change."""

from typing import Final

from gpu_control_plane.api.nvidia.names import StackCondition, StackEvent, StackReason
from gpu_control_plane.api.nvidia.status import StackStatus
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver
from gpu_control_plane.kube import EventRecorder
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.operator.stack.apply import Applied
from gpu_control_plane.operator.stack.events import tell_status

_NAMED: Final = 5


def tell_driver(recorder: EventRecorder, driver: StoredNVIDIADriver, new: StackStatus) -> None:
    """Tell of a status that is about to be another: readiness, conflicts, fields without effect."""
    old = driver.status
    tell_status(recorder, driver, old, new)
    before, after = (find(status.conditions, StackCondition.ERROR) for status in (old, new))
    conflicting = StackReason.CONFLICTING_NODE_SELECTOR
    if after is not None and after.reason == conflicting and (before is None or before.reason != conflicting):
        recorder.warning(driver, StackEvent.CONFLICTING_NODE_SELECTOR, after.message)


def tell_repaired(recorder: EventRecorder, driver: StoredNVIDIADriver, applied: Applied) -> None:
    """Tell that another hand had been on its objects."""
    mended = sorted([*applied.created, *applied.repaired])
    if mended:
        more = f" and {len(mended) - _NAMED} more" if len(mended) > _NAMED else ""
        note = f"Somebody had changed or removed {', '.join(mended[:_NAMED])}{more}; all is as the NVIDIADriver says."
        recorder.warning(driver, StackEvent.DRIFT_REPAIRED, note)
