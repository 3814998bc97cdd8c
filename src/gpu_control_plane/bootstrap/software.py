"""Driver and toolkit, each by itself: what the node reports, what checks found, which step a validator is at."""

from typing import Final

from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.conditions import DesiredCondition, failed_check_message
from gpu_control_plane.bootstrap.operand_status import OperandStatus, OperandStatuses
from gpu_control_plane.bootstrap.operands import VALIDATORS, Operand
from gpu_control_plane.bootstrap.snapshot import Snapshot
from gpu_control_plane.rules.node_readiness import DRIVER, TOOLKIT, failed_check

_STEP_SUFFIX: Final = "-validation"


def driver(snapshot: Snapshot, operands: OperandStatuses) -> DesiredCondition:
    kind, status = NodeCondition.DRIVER_MISSING, snapshot.state.status
    if status.driver is None:
        return DesiredCondition(kind, True, Reason.DRIVER_NOT_FOUND, _no_driver(snapshot, operands))
    if failed := failed_check(status, DRIVER):
        return DesiredCondition(kind, True, Reason.VALIDATION_FAILED, failed_check_message(failed))
    if stuck := stuck_validator(operands, DRIVER):
        return DesiredCondition(kind, True, Reason.VALIDATOR_NOT_PASSED, stuck)
    return DesiredCondition(kind, False, Reason.DRIVER_FOUND, f"Driver {status.driver.version} is loaded.")


def toolkit(snapshot: Snapshot, operands: OperandStatuses) -> DesiredCondition:
    kind, status = NodeCondition.TOOLKIT_MISSING, snapshot.state.status
    if status.toolkit is None:
        return DesiredCondition(kind, True, Reason.TOOLKIT_NOT_FOUND, _no_toolkit(snapshot, operands))
    if failed := failed_check(status, TOOLKIT):
        return DesiredCondition(kind, True, Reason.VALIDATION_FAILED, failed_check_message(failed))
    if stuck := stuck_validator(operands, TOOLKIT):
        return DesiredCondition(kind, True, Reason.VALIDATOR_NOT_PASSED, stuck)
    message = f"Containers are given cards by {status.toolkit.injection}."
    return DesiredCondition(kind, False, Reason.TOOLKIT_FOUND, message)


def stuck_validator(operands: OperandStatuses, step: str) -> str | None:
    """The message about a validator that has been at this step for too long. Later steps wait for earlier ones."""
    for validator in operands.among(VALIDATORS):
        if validator.lost and validator.pod is not None and step_of(validator) == step:
            where, name = validator.pod.metadata.namespace or "default", validator.pod.name
            return (
                f"The {validator.operand} pod {name} does not get past its step {step}. "
                f"See why: `kubectl -n {where} logs {name} -c {step}{_STEP_SUFFIX}`."
            )
    return None


def step_of(validator: OperandStatus) -> str:
    """The first step, an init container, that has not ended well; empty when all have, or none was begun."""
    statuses = validator.pod.status.init_container_statuses if validator.pod is not None else ()
    return next((status.name.removesuffix(_STEP_SUFFIX) for status in statuses if not status.ready), "")


def _no_driver(snapshot: Snapshot, operands: OperandStatuses) -> str:
    installer = operands.get(Operand.NVIDIA_DRIVER)
    if installer is not None and installer.lost:
        return f"The node reports no GPU driver. {installer.trouble}"
    if installer is not None and installer.pod is not None:
        return f"The node reports no GPU driver. The pod {installer.pod.name} is to bring it: wait for it."
    kernel = snapshot.node.status.node_info.kernel_version if snapshot.node is not None else ""
    built = f" for its kernel {kernel}" if kernel else ""
    return (
        f"The node reports no GPU driver. Install it on the machine{built}, or have a ClusterPolicy bring it. Then "
        f"`nvidia-smi` must answer on {snapshot.name}; the agent notices within 15 seconds, and nothing needs a "
        "restart."
    )


def _no_toolkit(snapshot: Snapshot, operands: OperandStatuses) -> str:
    if snapshot.state.status.driver is None:
        return "The node reports neither CDI nor a GPU runtime. That needs the driver: install that first."
    installer = operands.get(Operand.NVIDIA_TOOLKIT)
    if installer is not None and installer.lost:
        return f"The node reports neither CDI nor a GPU runtime. {installer.trouble}"
    return (
        "The node reports neither CDI nor a GPU runtime. Switch CDI on in its container runtime: "
        f"`python -m gpu_control_plane.agent.runtimes inspect` on {snapshot.name} says what is missing, `set` writes "
        "it."
    )
