"""The conditions that bootstrap writes, before they have a transition time."""

from typing import Final

import msgspec

from gpu_control_plane.api.gpunodestate import ValidationStep
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.kube.conditions import FALSE, TRUE

GOOD_STATUS: Final = {
    NodeCondition.DRIVER_MISSING: FALSE,
    NodeCondition.TOOLKIT_MISSING: FALSE,
    NodeCondition.MONITORING_MISSING: FALSE,
    NodeCondition.GFD_READY: TRUE,
    NodeCondition.DEGRADED: FALSE,
    NodeCondition.READY_FOR_POOLING: TRUE,
}
"""Every condition of bootstrap, with the status that it has when nothing is wrong."""


class DesiredCondition(msgspec.Struct, frozen=True):
    kind: NodeCondition
    status: bool | None
    """None: Unknown, since the node is not managed."""
    reason: Reason
    message: str


def failed_check_message(check: ValidationStep) -> str:
    return f"The check of {check.name} failed: {check.message or 'no reason was given'}"
