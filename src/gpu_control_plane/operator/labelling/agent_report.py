"""What a GPUNodeState says about the node's driver and about who hands out its cards. Pure."""

from typing import Final

from gpu_control_plane.api.gpunodestate import DriverSource, GPUNodeState, NodeStateStatus, StepResult
from gpu_control_plane.operator.labelling.decide import SILENT, HostDriver, Report

OLDEST: Final = 450
"""The oldest branch of the driver that today's toolkit, DCGM and MIG work with."""
_STEP: Final = "driver"


def host_driver(state: GPUNodeState | None) -> HostDriver | None:
    """The driver that the host brings, with what is wrong with it; None without one, or without a word about it."""
    driver = state.status.driver if state is not None else None
    if state is None or driver is None or driver.source != DriverSource.HOST:
        return None
    return HostDriver(driver.version, _problem(driver.version, state.status))


def report_of(state: GPUNodeState | None) -> Report:
    if state is None:
        return SILENT
    return Report(
        host_driver=host_driver(state),
        driver_known=_driver_known(state.status),
        agent_plugin=state.status.plugin is not None,
    )


def _driver_known(status: NodeStateStatus) -> bool:
    """An agent that has made room for a reload sees no driver, and that means nothing."""
    if status.quiesced is not None:
        return False
    if status.driver is not None:
        return status.driver.source is not None
    return _outcome(status)[0] == StepResult.FAILED


def _problem(version: str, status: NodeStateStatus) -> str:
    branch = version.partition(".")[0]
    if branch.isdecimal() and int(branch) < OLDEST:
        return (
            f"The host's driver {version} is too old: {OLDEST} or newer is needed. Upgrade it, or, where the "
            "ClusterPolicy brings drivers, remove it from the host."
        )
    result, message = _outcome(status)
    if result == StepResult.FAILED:
        return f"The host's driver {version} does not work: {message or 'its check failed'}"
    return ""


def _outcome(status: NodeStateStatus) -> tuple[StepResult | None, str]:
    """How the check of the driver ended."""
    steps = status.validation.steps if status.validation is not None else ()
    found = next((step for step in steps if step.name == _STEP), None)
    return (found.result, found.message or "") if found is not None else (None, "")
