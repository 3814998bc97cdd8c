"""Events about the conditions of a node: one for each change of a status."""

from typing import Final

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.names import EventReason, NodeCondition
from gpu_control_plane.bootstrap.conditions import GOOD_STATUS
from gpu_control_plane.kube import Condition, EventRecorder
from gpu_control_plane.kube.conditions import TRUE, UNKNOWN, find

_ALSO_OF_A_NEW_NODE: Final = frozenset({NodeCondition.MONITORING_MISSING, NodeCondition.DEGRADED})
"""Conditions that ReadyForPooling does not include, and that alerts are about."""


def record_changes(recorder: EventRecorder, old: GPUNodeState, new: GPUNodeState) -> None:
    """Write an Event for each condition whose status differs between two versions of a node's object.

    A new node has one about its readiness, whose note names what is missing, and beside that only those about what is
    wrong: a node on which nothing is wrong costs one Event. The same goes for a node that is managed again.
    """
    for kind, good in GOOD_STATUS.items():
        was, now = find(old.status.conditions, kind), find(new.status.conditions, kind)
        if now is None or now.status == UNKNOWN or (was is not None and was.status == now.status):
            continue
        if (was is None or was.status == UNKNOWN) and not _is_recorded_when_new(kind, now):
            continue
        write = recorder.normal if now.status == good else recorder.warning
        write(new, _reason(kind, now), now.message)


def _is_recorded_when_new(kind: NodeCondition, now: Condition) -> bool:
    wrong = now.status != GOOD_STATUS[kind]
    return kind is NodeCondition.READY_FOR_POOLING or (kind in _ALSO_OF_A_NEW_NODE and wrong)


def _reason(kind: NodeCondition, now: Condition) -> str:
    if kind is not NodeCondition.READY_FOR_POOLING:
        return now.reason
    return EventReason.READY_FOR_POOLING if now.status == TRUE else EventReason.NOT_READY_FOR_POOLING
