"""When the node is checked, and what a check waits for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from gpu_control_plane.agent.node import inspection
from gpu_control_plane.agent.node.inspection import Inspector, Situation
from gpu_control_plane.agent.node.options import Hardware, Options
from gpu_control_plane.agent.node.watch import HardwareWatch
from gpu_control_plane.agent.recovery import CardHealth
from gpu_control_plane.agent.validator.files import StatusFiles
from gpu_control_plane.agent.validator.runner import SimulatedRunner
from gpu_control_plane.agent.validator.steps import Step
from gpu_control_plane.agent.validator.validate import Validator
from gpu_control_plane.api.gpunodestate import Injection, StepResult
from gpu_control_plane.kube.times import utc_now
from unit.agent.node.scenes import NODE, RESOURCE, backend
from waiting import until

UNLISTED = Situation(driver=None, cards=(), ordered=frozenset({RESOURCE}), listed={RESOURCE: False})
LISTED = msgspec.structs.replace(UNLISTED, listed={RESOURCE: True})


class Bench:
    """An inspector at work, with the outcome of the step `plugin` in each of its checks."""

    def __init__(self, folder: Path) -> None:
        options = Options(node=NODE, hardware=Hardware.SIMULATED, injection=Injection.KUBELET, host=folder / "host")
        self.watch = HardwareWatch(NODE, backend, lambda _card: CardHealth(), lambda: None)
        self.inspector = Inspector(
            options,
            self.watch,
            Validator(SimulatedRunner({}), StatusFiles(folder / "validations")),
            find_cuda=lambda: None,
            held=lambda: None,
            on_result=self.note,
            now=utc_now,
        )
        self.outcomes: list[StepResult] = []

    def note(self) -> None:
        assert self.inspector.result is not None
        self.outcomes += [step.result for step in self.inspector.result.steps if step.name == Step.PLUGIN]


@pytest.fixture
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "_SETTLING", 0.01)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Bench]:
    bench = Bench(folder)
    await bench.watch.probe()
    task = asyncio.create_task(bench.inspector.run())
    try:
        yield bench
    finally:
        task.cancel()
        await asyncio.wait((task,))


@pytest.mark.usefixtures("_hurry")
async def test_a_kubelet_that_is_about_to_list_a_resource_fails_no_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "_HEARING", 600.0)
    async with running(tmp_path) as bench:
        bench.inspector.consider(UNLISTED, frozenset(), unheard=True)
        await asyncio.sleep(0.3)  # the time in which a hasty check would fail
        bench.inspector.consider(LISTED, frozenset())
        await until(lambda: bench.outcomes, saying="a check")
    assert bench.outcomes == [StepResult.PASSED]


@pytest.mark.usefixtures("_hurry")
@pytest.mark.parametrize("unheard", [True, False])
async def test_a_kubelet_that_never_lists_it_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, unheard: bool
) -> None:
    monkeypatch.setattr(inspection, "_HEARING", 0.05)
    async with running(tmp_path) as bench:
        bench.inspector.consider(UNLISTED, frozenset(), unheard=unheard)
        await until(lambda: bench.outcomes, saying="a check")
    assert bench.outcomes == [StepResult.FAILED]
