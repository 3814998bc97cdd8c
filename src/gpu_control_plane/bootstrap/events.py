"""What people are told when a node becomes ready for pools, or no longer is."""

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.names import EventReason, NodeCondition
from gpu_control_plane.kube import EventRecorder
from gpu_control_plane.kube.conditions import TRUE, find


def tell_readiness(recorder: EventRecorder, old: GPUNodeState, new: GPUNodeState) -> None:
    """Tell of the change between two versions of a node's object, if readiness is part of it."""
    was = find(old.status.conditions, NodeCondition.READY_FOR_POOLING)
    now = find(new.status.conditions, NodeCondition.READY_FOR_POOLING)
    if now is None or (was is not None and was.status == now.status):
        return
    if now.status == TRUE:
        recorder.normal(new, EventReason.READY_FOR_POOLING, now.message)
    else:
        recorder.warning(new, EventReason.NOT_READY_FOR_POOLING, now.message)
