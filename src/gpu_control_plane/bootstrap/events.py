"""What people are told when a condition of a node changes: one Event for each change of a status."""

from typing import Final

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.names import EventReason, NodeCondition
from gpu_control_plane.kube import Condition, EventRecorder
from gpu_control_plane.kube.conditions import FALSE, TRUE, UNKNOWN, find

GOOD: Final = {
    NodeCondition.DRIVER_MISSING: FALSE,
    NodeCondition.TOOLKIT_MISSING: FALSE,
    NodeCondition.MONITORING_MISSING: FALSE,
    NodeCondition.GFD_READY: TRUE,
    NodeCondition.DEGRADED: FALSE,
    NodeCondition.READY_FOR_POOLING: TRUE,
}
"""Bootstrap's conditions, and the status of each with which all is well."""
_FROM_THE_START: Final = frozenset({NodeCondition.MONITORING_MISSING, NodeCondition.DEGRADED})
"""Trouble that the word about readiness does not include, and that an alert is about."""


def tell_changes(recorder: EventRecorder, old: GPUNodeState, new: GPUNodeState) -> None:
    """Tell what changed between two versions of a node's object.

    A new node tells whether it is ready, and the message names what is missing. Beside that it tells trouble only, so
    that one on which all is well costs one Event. So does one that is managed again; that nobody looks is no trouble.
    """
    for kind, good in GOOD.items():
        was, now = find(old.status.conditions, kind), find(new.status.conditions, kind)
        if now is None or now.status == UNKNOWN or (was is not None and was.status == now.status):
            continue
        if (was is None or was.status == UNKNOWN) and not _said_of_new(kind, now):
            continue
        say = recorder.normal if now.status == good else recorder.warning
        say(new, _reason(kind, now), now.message)


def _said_of_new(kind: NodeCondition, now: Condition) -> bool:
    return kind is NodeCondition.READY_FOR_POOLING or (kind in _FROM_THE_START and now.status != GOOD[kind])


def _reason(kind: NodeCondition, now: Condition) -> str:
    if kind is not NodeCondition.READY_FOR_POOLING:
        return now.reason
    return EventReason.READY_FOR_POOLING if now.status == TRUE else EventReason.NOT_READY_FOR_POOLING
