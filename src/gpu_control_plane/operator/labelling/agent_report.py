"""What the agent reports, in a GPUNodeState, about the node's driver and about who hands out its cards. Pure."""

from typing import Final

from gpu_control_plane.api.gpunodestate import DriverSource, GPUNodeState, NodeStateStatus, StepResult
from gpu_control_plane.operator.labelling.decide import NO_REPORT, AgentReport, HostDriver

OLDEST_DRIVER_BRANCH: Final = 450
"""The oldest branch of the driver that today's toolkit, DCGM and MIG work with."""
_DRIVER_CHECK: Final = "driver"


def host_driver(state: GPUNodeState | None) -> HostDriver | None:
    """The driver that the host brings, with what is wrong with it; None without one, or without a report about it."""
    driver = state.status.driver if state is not None else None
    if state is None or driver is None or driver.source != DriverSource.HOST:
        return None
    return HostDriver(driver.version, _problem(driver.version, state.status))


def agent_report(state: GPUNodeState | None) -> AgentReport:
    if state is None:
        return NO_REPORT
    return AgentReport(
        host_driver=host_driver(state),
        driver_known=_driver_known(state.status),
        agent_plugin=state.status.plugin is not None,
    )


def _driver_known(status: NodeStateStatus) -> bool:
    """Whether the agent has looked for a driver. One that has released the driver for a reload sees none; that does not
    mean that the host brings none."""
    if status.quiesced is not None:
        return False
    if status.driver is not None:
        return status.driver.source is not None
    return _driver_check(status)[0] == StepResult.FAILED


def _problem(version: str, status: NodeStateStatus) -> str:
    branch = version.partition(".")[0]
    if branch.isdecimal() and int(branch) < OLDEST_DRIVER_BRANCH:
        return (
            f"The host's driver {version} is too old: {OLDEST_DRIVER_BRANCH} or newer is needed. Upgrade it, or, where"
            " the ClusterPolicy brings drivers, remove it from the host."
        )
    result, message = _driver_check(status)
    if result == StepResult.FAILED:
        return f"The host's driver {version} does not work: {message or 'its check failed'}"
    return ""


def _driver_check(status: NodeStateStatus) -> tuple[StepResult | None, str]:
    """The result of the agent's check of the driver, and its message."""
    steps = status.validation.steps if status.validation is not None else ()
    found = next((step for step in steps if step.name == _DRIVER_CHECK), None)
    return (found.result, found.message or "") if found is not None else (None, "")
