"""Whether the condition ReadyForPooling of a node may be acted on, by the rest of the node's status.

Inventory, bootstrap and pools run side by side. After a restart, or when much happens at once, one of them may look at
a node before another has written what it knows. Two windows follow. The agent has reported and inventory has not taken
the report in: then the status may name a driver that is gone. Inventory has written and bootstrap has not: then the
condition ReadyForPooling is older than the rest of the status. A card that is ordered in either window would be
ordered for a node that is not ready.
"""

from collections.abc import Callable
from typing import Final

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import NodeStateStatus, StepResult, ValidationStep
from gpu_control_plane.api.names import NodeCondition
from gpu_control_plane.api.nodefeature import NodeFeature
from gpu_control_plane.kube.conditions import is_true

DRIVER: Final = "driver"
TOOLKIT: Final = "toolkit"
CUDA: Final = "cuda"
REQUIRED_CHECKS: Final = (DRIVER, TOOLKIT, CUDA)
"""The checks without which no node is ready."""


def is_report_observed(
    status: NodeStateStatus, report: NodeFeature | None, find_device: Callable[[str], GPUDevice | None]
) -> bool:
    """The first window: whether inventory has taken in everything that this status depends on.

    That is the agent's report, compared by its uid and generation. And it is the label ignore of cards, which has no
    generation: a card may be missing from the report because it is ignored, so each card that the status counts as
    ignored must still be.
    """
    ignored = (find_device(card.inventory_id) for card in status.devices if card.ignored)
    if not all(device is not None and device.ignored for device in ignored):
        return False
    if report is None:
        return status.observed_report is None
    return status.observed_report is not None and status.observed_report.covers(report.metadata)


def contradicts_readiness(status: NodeStateStatus) -> bool:
    """The second window: whether no node with this status is ready, whatever its condition ReadyForPooling still says.

    This repeats only those of bootstrap's rules that rest on fields of other writers and take effect at once.
    """
    return (
        not is_true(status.conditions, NodeCondition.INVENTORY_COMPLETE)
        or status.driver is None
        or status.toolkit is None
        or any(failed_check(status, name) for name in REQUIRED_CHECKS)
        or status.quiesced is not None
        or (status.plugin is not None and bool(status.plugin.conflicts or status.plugin.driver_hung))
    )


def failed_check(status: NodeStateStatus, name: str) -> ValidationStep | None:
    """The check of this name if the agent made it and it failed."""
    steps = status.validation.steps if status.validation is not None else ()
    return next((step for step in steps if step.name == name and step.result is StepResult.FAILED), None)
