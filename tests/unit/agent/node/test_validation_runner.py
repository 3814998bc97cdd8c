"""When the node is checked, and what a check waits for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from gpu_control_plane.agent.node.hardware_watch import HardwareWatch
from gpu_control_plane.agent.node.options import Hardware, Options
from gpu_control_plane.agent.node.validation_runner import CheckSubject, CheckTiming, ValidationRunner
from gpu_control_plane.agent.simulated.checks import SimulatedChecks
from gpu_control_plane.agent.simulated.models import VENDOR
from gpu_control_plane.agent.validator.kernel import SimulatedKernel
from gpu_control_plane.agent.validator.steps import PLUGIN
from gpu_control_plane.agent.validator.validator import Validator
from gpu_control_plane.agent.vendors.registry import support_of
from gpu_control_plane.api.gpunodestate import Injection, StepResult, Validation, ValidationStep
from gpu_control_plane.kube.times import utc_now
from unit.agent.step.builders import NODE, NOW, RESOURCE, backend
from waiting import until

UNLISTED = CheckSubject(driver=None, cards=(), ordered=frozenset({RESOURCE}), listed={RESOURCE: False})
LISTED = msgspec.structs.replace(UNLISTED, listed={RESOURCE: True})
NONE: frozenset[str] = frozenset()


class Checked:
    """A runner, with the outcome of the step `plugin` in each of its checks."""

    def __init__(self, folder: Path, confirm: float) -> None:
        vendor = support_of(VENDOR)
        options = Options(node=NODE, hardware=Hardware.SIMULATED, injection=Injection.KUBELET, host=folder / "host")
        self.watch = HardwareWatch(NODE, backend, lambda: None)
        self.runner = ValidationRunner(
            options,
            self.watch,
            Validator(SimulatedKernel({})),
            checks=lambda: SimulatedChecks(vendor.checks(options.driver_search, folder / "validations", ())),
            kernel_step=lambda: vendor.kernel_step,
            container_runtime=None,
            runtime_handler=lambda: vendor.runtime_handler,
            reported=lambda: None,
            on_result=self.note,
            now=utc_now,
            timing=CheckTiming(settle=0.01, confirm=confirm),
        )
        self.outcomes: list[StepResult] = []

    def note(self) -> None:
        assert self.runner.result is not None
        self.outcomes += [step.result for step in self.runner.result.steps if step.name == PLUGIN]


@asynccontextmanager
async def running(folder: Path, *, confirm: float) -> AsyncIterator[Checked]:
    checked = Checked(folder, confirm)
    checked.watch.acquire_driver()
    await checked.watch.probe()
    task = asyncio.create_task(checked.runner.run())
    try:
        yield checked
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_a_kubelet_that_is_about_to_list_a_resource_fails_no_check(tmp_path: Path) -> None:
    async with running(tmp_path, confirm=600.0) as checked:
        checked.runner.consider(UNLISTED, in_use=NONE, unconfirmed=True)
        await asyncio.sleep(0.1)  # the time in which a hasty check would fail
        checked.runner.consider(LISTED, in_use=NONE)
        await until(lambda: checked.outcomes, saying="a check")
    assert checked.outcomes == [StepResult.PASSED]


@pytest.mark.parametrize("unconfirmed", [True, False])
async def test_a_kubelet_that_never_lists_it_fails_the_check(tmp_path: Path, *, unconfirmed: bool) -> None:
    async with running(tmp_path, confirm=0.05) as checked:
        checked.runner.consider(UNLISTED, in_use=NONE, unconfirmed=unconfirmed)
        await until(lambda: checked.outcomes, saying="a check")
    assert checked.outcomes == [StepResult.FAILED]


@pytest.mark.parametrize(
    ("results", "passed"),
    [
        ({"driver": StepResult.PASSED, "cuda": StepResult.PASSED}, True),
        ({"driver": StepResult.PASSED, "toolkit": StepResult.FAILED}, True),
        ({"driver": StepResult.FAILED}, False),
        ({"driver": StepResult.PASSED, "cuda": StepResult.FAILED}, False),
        (None, False),
    ],
)
async def test_burn_in_waits_for_a_driver_that_works(
    tmp_path: Path, results: dict[str, StepResult] | None, passed: bool
) -> None:
    runner = Checked(tmp_path, 1.0).runner
    if results is not None:
        steps = tuple(ValidationStep(name=name, result=result, at=NOW) for name, result in results.items())
        runner.result = Validation(steps=steps)
    assert runner.passed_driver_checks is passed
