"""What one look at a node finds: a condition in the making."""

import msgspec

from gpu_control_plane.api.gpunodestate import NodeStateStatus, StepResult, ValidationStep
from gpu_control_plane.api.names import NodeCondition, Reason


class Finding(msgspec.Struct, frozen=True):
    """One condition in the making."""

    kind: NodeCondition
    status: bool
    reason: Reason
    message: str


def failed_step(status: NodeStateStatus, name: str) -> ValidationStep | None:
    """A check of the agent that found something broken; one that was not made says nothing."""
    steps = status.validation.steps if status.validation is not None else ()
    return next((step for step in steps if step.name == name and step.result is StepResult.FAILED), None)


def about_step(step: ValidationStep) -> str:
    return f"The check of {step.name} failed: {step.message or 'no reason was given'}"
