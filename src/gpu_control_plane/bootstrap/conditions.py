"""What one look at a node finds: a condition in the making."""

import msgspec

from gpu_control_plane.api.gpunodestate import ValidationStep
from gpu_control_plane.api.names import NodeCondition, Reason


class Finding(msgspec.Struct, frozen=True):
    """One condition in the making."""

    kind: NodeCondition
    status: bool | None
    """None where nobody looks."""
    reason: Reason
    message: str


def about_step(step: ValidationStep) -> str:
    return f"The check of {step.name} failed: {step.message or 'no reason was given'}"
