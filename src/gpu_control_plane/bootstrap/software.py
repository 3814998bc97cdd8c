"""Driver and toolkit, each judged by itself: what the node reports, what checks found, which step a validator is at."""

from typing import Final

from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.findings import Finding, about_step
from gpu_control_plane.bootstrap.operands import VALIDATORS, Operand
from gpu_control_plane.bootstrap.snapshot import Snapshot
from gpu_control_plane.bootstrap.standing import Standing, Standings
from gpu_control_plane.rules.node_readiness import DRIVER, TOOLKIT, failed_check

_STEP_SUFFIX: Final = "-validation"


def driver(seen: Snapshot, programs: Standings) -> Finding:
    kind, status = NodeCondition.DRIVER_MISSING, seen.state.status
    if status.driver is None:
        return Finding(kind, True, Reason.DRIVER_NOT_FOUND, _no_driver(seen, programs))
    if failed := failed_check(status, DRIVER):
        return Finding(kind, True, Reason.VALIDATION_FAILED, about_step(failed))
    if stuck := stuck_validator(programs, DRIVER):
        return Finding(kind, True, Reason.VALIDATOR_NOT_PASSED, stuck)
    return Finding(kind, False, Reason.DRIVER_FOUND, f"Driver {status.driver.version} is loaded.")


def toolkit(seen: Snapshot, programs: Standings) -> Finding:
    kind, status = NodeCondition.TOOLKIT_MISSING, seen.state.status
    if status.toolkit is None:
        return Finding(kind, True, Reason.TOOLKIT_NOT_FOUND, _no_toolkit(seen, programs))
    if failed := failed_check(status, TOOLKIT):
        return Finding(kind, True, Reason.VALIDATION_FAILED, about_step(failed))
    if stuck := stuck_validator(programs, TOOLKIT):
        return Finding(kind, True, Reason.VALIDATOR_NOT_PASSED, stuck)
    return Finding(kind, False, Reason.TOOLKIT_FOUND, f"Containers are given cards by {status.toolkit.injection}.")


def stuck_validator(programs: Standings, step: str) -> str | None:
    """The sentence about a validator that has been at this step for too long. Later steps wait for earlier ones."""
    for standing in programs.among(VALIDATORS):
        if standing.lost and standing.pod is not None and step_of(standing) == step:
            where, name = standing.pod.metadata.namespace or "default", standing.pod.name
            return (
                f"The {standing.operand} pod {name} does not get past its step {step}. "
                f"See why: `kubectl -n {where} logs {name} -c {step}{_STEP_SUFFIX}`."
            )
    return None


def step_of(standing: Standing) -> str:
    """The first step that has not ended well; empty when all have, or none was begun."""
    statuses = standing.pod.status.init_container_statuses if standing.pod is not None else ()
    return next((status.name.removesuffix(_STEP_SUFFIX) for status in statuses if not status.ready), "")


def _no_driver(seen: Snapshot, programs: Standings) -> str:
    installer = programs.get(Operand.NVIDIA_DRIVER)
    if installer is not None and installer.lost:
        return f"The node reports no GPU driver. {installer.trouble}"
    if installer is not None and installer.pod is not None:
        return f"The node reports no GPU driver. The pod {installer.pod.name} is to bring it: wait for it."
    kernel = seen.node.status.node_info.kernel_version if seen.node is not None else ""
    built = f" for its kernel {kernel}" if kernel else ""
    return (
        f"The node reports no GPU driver. Install it on the machine{built}, or have a ClusterPolicy bring it. Then "
        f"`nvidia-smi` must answer on {seen.name}; the agent notices within 15 seconds, and nothing needs a restart."
    )


def _no_toolkit(seen: Snapshot, programs: Standings) -> str:
    if seen.state.status.driver is None:
        return "The node reports neither CDI nor a GPU runtime. That needs the driver: install that first."
    installer = programs.get(Operand.NVIDIA_TOOLKIT)
    if installer is not None and installer.lost:
        return f"The node reports neither CDI nor a GPU runtime. {installer.trouble}"
    return (
        "The node reports neither CDI nor a GPU runtime. Switch CDI on in its container runtime: "
        f"`python -m gpu_control_plane.agent.runtimes inspect` on {seen.name} says what is missing, `set` writes it."
    )
