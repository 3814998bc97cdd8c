"""Whether the cards of a node may join pools, and what is missing if not.

What the node reports counts, and a check that failed counts more. A node that was not checked is not held up by it:
where no validator runs there would never be a ready node. Missing metrics are shown but hold nothing up either: cards
work without them. Whether the kubelet is well is not asked: that comes and goes, and the scheduler looks after it.
"""

from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.gpunodestate import NodeStateStatus, StepResult, ValidationStep
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import TRUE, condition, find

DRIVER: Final = "driver"
TOOLKIT: Final = "toolkit"
CUDA: Final = "cuda"


class Finding(msgspec.Struct, frozen=True):
    """One condition in the making."""

    kind: NodeCondition
    status: bool
    reason: Reason
    message: str


def decide(state: GPUNodeState, now: datetime) -> tuple[Condition, ...]:
    """The conditions of a node; none before inventory has spoken of it."""
    held = state.status.conditions
    complete = find(held, NodeCondition.INVENTORY_COMPLETE)
    if complete is None:
        return ()
    driver, toolkit, monitoring = _driver(state.status), _toolkit(state.status), _monitoring(state.status)
    degraded = _degraded(state.status)
    ready = _ready(state.status, complete, driver, toolkit, degraded)
    findings = (driver, toolkit, monitoring, degraded, ready)
    return tuple(
        condition(held, one.kind.value, one.status, one.reason.value, one.message, now=now) for one in findings
    )


def _driver(status: NodeStateStatus) -> Finding:
    kind = NodeCondition.DRIVER_MISSING
    if status.driver is None:
        return Finding(kind, True, Reason.DRIVER_NOT_FOUND, "The node reports no GPU driver. Install one.")
    if failed := _failed(status, DRIVER):
        return Finding(kind, True, Reason.VALIDATION_FAILED, _about(failed))
    return Finding(kind, False, Reason.DRIVER_FOUND, f"Driver {status.driver.version} is loaded.")


def _toolkit(status: NodeStateStatus) -> Finding:
    kind = NodeCondition.TOOLKIT_MISSING
    if status.toolkit is None:
        message = "The node reports neither CDI nor a GPU runtime. Switch CDI on in its container runtime."
        return Finding(kind, True, Reason.TOOLKIT_NOT_FOUND, message)
    if failed := _failed(status, TOOLKIT):
        return Finding(kind, True, Reason.VALIDATION_FAILED, _about(failed))
    return Finding(kind, False, Reason.TOOLKIT_FOUND, f"Containers are given cards by {status.toolkit.injection}.")


def _monitoring(status: NodeStateStatus) -> Finding:
    kind = NodeCondition.MONITORING_MISSING
    if status.monitoring is None:
        return Finding(kind, True, Reason.MONITORING_NOT_FOUND, "The node reports no exporter of metrics.")
    return Finding(kind, False, Reason.MONITORING_FOUND, f"Metrics come from {status.monitoring.source}.")


def _degraded(status: NodeStateStatus) -> Finding:
    kind = NodeCondition.DEGRADED
    rivals = status.plugin.conflicts if status.plugin is not None else ()
    if rivals:
        message = f"Another device plugin serves cards of this node: {', '.join(rivals)}. Remove it from the node."
        return Finding(kind, True, Reason.CONFLICTING_DEVICE_PLUGIN, message)
    return Finding(kind, False, Reason.UNDISTURBED, "The agent alone serves the cards of the node.")


def _ready(
    status: NodeStateStatus, complete: Condition, driver: Finding, toolkit: Finding, degraded: Finding
) -> Finding:
    """The first obstacle, in the order in which a person would clear them."""
    kind = NodeCondition.READY_FOR_POOLING
    if complete.status != TRUE:
        return Finding(kind, False, Reason.INVENTORY_INCOMPLETE, complete.message)
    if driver.status:
        return Finding(kind, False, Reason.DRIVER_NOT_READY, driver.message)
    if toolkit.status:
        return Finding(kind, False, Reason.TOOLKIT_NOT_READY, toolkit.message)
    if failed := _failed(status, CUDA):
        return Finding(kind, False, Reason.VALIDATION_FAILED, _about(failed))
    if degraded.status:
        return Finding(kind, False, degraded.reason, degraded.message)
    return Finding(kind, True, Reason.READY, "The cards of the node may join pools.")


def _failed(status: NodeStateStatus, name: str) -> ValidationStep | None:
    steps = status.validation.steps if status.validation is not None else ()
    return next((step for step in steps if step.name == name and step.result is StepResult.FAILED), None)


def _about(step: ValidationStep) -> str:
    return f"The check of {step.name} failed: {step.message or 'no reason was given'}"
