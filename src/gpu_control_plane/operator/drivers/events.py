"""What people are told of an NVIDIADriver: once for each change."""

from gpu_control_plane.api.nvidia.names import StackCondition, StackEvent, StackReason
from gpu_control_plane.api.nvidia.status import StackStatus
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver
from gpu_control_plane.kube import EventRecorder
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.operator.stack.events import tell_status


def tell_driver(recorder: EventRecorder, driver: StoredNVIDIADriver, new: StackStatus) -> None:
    """Tell of a status that is about to be another: readiness, conflicts, fields without effect."""
    old = driver.status
    tell_status(recorder, driver, old, new)
    before, after = (find(status.conditions, StackCondition.ERROR) for status in (old, new))
    conflicting = StackReason.CONFLICTING_NODE_SELECTOR
    if after is not None and after.reason == conflicting and (before is None or before.reason != conflicting):
        recorder.warning(driver, StackEvent.CONFLICTING_NODE_SELECTOR, after.message)
