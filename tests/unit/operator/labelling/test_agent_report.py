"""What a GPUNodeState says about the host's driver and about who hands out cards."""

import msgspec
import pytest

from gpu_control_plane.api.examples import NOON, node_state
from gpu_control_plane.api.gpunodestate import (
    Driver,
    DriverSource,
    GPUNodeState,
    NodeStateStatus,
    Quiesced,
    StepResult,
    Validation,
    ValidationStep,
)
from gpu_control_plane.operator.labelling.agent_report import agent_report, host_driver
from gpu_control_plane.operator.labelling.decide import NO_REPORT, HostDriver


def state(**status: object) -> GPUNodeState:
    return GPUNodeState(status=msgspec.structs.replace(NodeStateStatus(), **status))


def checked(result: StepResult, message: str | None = None) -> Validation:
    return Validation(steps=(ValidationStep(name="driver", result=result, message=message),))


def host(version: str = "580.159.04") -> Driver:
    return Driver(version=version, source=DriverSource.HOST)


def test_a_host_whose_driver_works_has_no_problem() -> None:
    assert host_driver(node_state()) == HostDriver("580.159.04")
    assert host_driver(state(driver=host("450.80.02"))) == HostDriver("450.80.02")
    assert host_driver(state(driver=host("r580-dev"))) == HostDriver("r580-dev")


@pytest.mark.parametrize(
    "nothing",
    [
        None,
        state(),
        state(driver=Driver(version="580.1", source=DriverSource.CONTAINER)),
        state(driver=Driver(version="580.1")),
    ],
)
def test_only_a_driver_with_the_source_host_is_a_host_driver(nothing: GPUNodeState | None) -> None:
    assert host_driver(nothing) is None


def test_a_driver_that_is_too_old_is_named() -> None:
    found = host_driver(state(driver=host("440.33.01"), validation=checked(StepResult.PASSED)))
    assert found is not None
    assert found.problem.startswith("The host's driver 440.33.01 is too old: 450 or newer is needed.")


def test_a_driver_that_failed_its_check_has_the_agents_reason() -> None:
    sentence = "The kernel module is 580.1 but the driver's libraries are 570.2."
    found = host_driver(state(driver=host(), validation=checked(StepResult.FAILED, sentence)))
    assert found is not None
    assert found.problem == f"The host's driver 580.159.04 does not work: {sentence}"
    without = host_driver(state(driver=host(), validation=checked(StepResult.FAILED)))
    assert without is not None
    assert without.problem.endswith("its check failed")


@pytest.mark.parametrize("result", [StepResult.PASSED, StepResult.RUNNING, StepResult.SKIPPED])
def test_a_check_that_did_not_fail_is_no_problem(result: StepResult) -> None:
    found = host_driver(state(driver=host(), validation=checked(result)))
    assert found is not None
    assert not found.problem


@pytest.mark.parametrize(
    ("reported", "known"),
    [
        (state(), False),
        (state(driver=host()), True),
        (state(driver=Driver(version="580.1", source=DriverSource.CONTAINER)), True),
        (state(driver=Driver(version="580.1")), False),
        (state(validation=checked(StepResult.FAILED)), True),
        (state(validation=checked(StepResult.RUNNING)), False),
        (state(validation=Validation()), False),
        (state(validation=checked(StepResult.FAILED), quiesced=Quiesced(since=NOON, reason="paused-for-x")), False),
    ],
)
def test_a_missing_report_about_a_driver_is_not_its_absence(reported: GPUNodeState, *, known: bool) -> None:
    assert agent_report(reported).driver_known is known


def test_an_agent_serves_when_it_has_registered_with_the_kubelet() -> None:
    assert agent_report(node_state()).agent_plugin
    assert not agent_report(state(driver=host())).agent_plugin
    assert agent_report(None) == NO_REPORT
