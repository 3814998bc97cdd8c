"""The order of the checks, what one result means for the others, and the files that others wait for."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.origin import Origin
from gpu_control_plane.agent.validator.kernel import KernelResult, SimulatedKernel
from gpu_control_plane.agent.validator.observe import PluginFacts, ToolkitFacts
from gpu_control_plane.agent.validator.steps import DRIVER
from gpu_control_plane.agent.validator.targets import Target
from gpu_control_plane.agent.validator.validator import CheckFacts, Validator
from gpu_control_plane.agent.vendors.interface import DriverCheck, failed, passed
from gpu_control_plane.agent.vendors.nvidia.checks import CUDA, GDRCOPY, NVIDIA_FS
from gpu_control_plane.agent.vendors.nvidia.status_files import NVIDIAStatusFiles
from gpu_control_plane.api.gpunodestate import DriverSource, StepResult, Validation

P, F, S, R = StepResult.PASSED, StepResult.FAILED, StepResult.SKIPPED, StepResult.RUNNING
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
FIRST, SECOND = (Target(address=f"0000:0{index}:00.0", device=f"GPU-{index}") for index in range(2))
GOOD = CheckFacts(
    driver=DriverCheck(outcome=passed("Driver 580.1.2 is loaded and answers."), version="580.1.2"),
    toolkit=ToolkitFacts(devices={"GPU-0": ()}),
    plugin=PluginFacts(),
    kernel_step=CUDA,
    targets=(FIRST, SECOND),
    extras={NVIDIA_FS: None, GDRCOPY: None},
)


class RecordingKernel:
    """A runner that remembers what it was asked, and answers as told."""

    def __init__(self, **answers: KernelResult) -> None:
        self.asked: list[str] = []
        self.answers = answers

    async def __call__(self, card: str) -> KernelResult:
        self.asked.append(card)
        return self.answers.get(card.replace("-", "_"), KernelResult(ok=True))


def in_use(target: Target) -> Target:
    return msgspec.structs.replace(target, obstacle="in use")


def but(**fields: object) -> CheckFacts:
    return msgspec.structs.replace(GOOD, **fields)


def results(validation: Validation) -> list[StepResult]:
    return [step.result for step in validation.steps]


def message(validation: Validation, step: str) -> str:
    return next(one.message or "" for one in validation.steps if one.name == step)


def files(folder: Path) -> NVIDIAStatusFiles:
    return NVIDIAStatusFiles(folder, HostPaths(Path("/host")))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_node_that_works_passes_every_step_that_is_on() -> None:
    found = await Validator(RecordingKernel()).validate(GOOD, None, NOW)
    assert [step.name for step in found.steps] == ["driver", "toolkit", "cuda", "plugin", "nvidia-fs", "gdrcopy"]
    assert results(found) == [P, P, P, P, S, S]
    assert found.driver_version == "580.1.2"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (but(driver=DriverCheck(outcome=failed("not loaded"))), [F, S, S, S, S, S]),
        (but(toolkit=ToolkitFacts()), [P, F, S, S, S, S]),
        (but(plugin=PluginFacts(ordered=frozenset({"a"}))), [P, P, P, F, S, S]),
    ],
)
async def test_after_a_failure_the_later_steps_are_skipped(facts: CheckFacts, expected: list[StepResult]) -> None:
    runner = RecordingKernel()
    extras = {NVIDIA_FS: passed("loaded"), GDRCOPY: passed("loaded")}
    found = await Validator(runner).validate(msgspec.structs.replace(facts, extras=extras), None, NOW)
    assert results(found) == expected
    assert bool(runner.asked) == (expected[2] is P)


async def test_further_checks_of_the_vendor_are_told_as_they_ended() -> None:
    facts = but(extras={NVIDIA_FS: passed("loaded"), GDRCOPY: failed("not loaded")})
    assert results(await Validator(RecordingKernel()).validate(facts, None, NOW))[-2:] == [P, F]


async def test_a_vendor_without_a_program_for_cards_has_no_step_for_it() -> None:
    runner = RecordingKernel()
    found = await Validator(runner).validate(but(kernel_step=None, extras={}), None, NOW)
    assert ([step.name for step in found.steps], runner.asked) == (["driver", "toolkit", "plugin"], [])


async def test_a_time_moves_only_with_its_result() -> None:
    validator = Validator(RecordingKernel())
    first = await validator.validate(GOOD, None, NOW)
    assert await validator.validate(GOOD, first, LATER) == first
    broken = await validator.validate(but(plugin=PluginFacts(ordered=frozenset({"a"}))), first, LATER)
    assert [step.at for step in broken.steps] == [NOW, NOW, NOW, LATER, NOW, NOW]


async def test_cards_in_use_are_left_alone_and_named() -> None:
    runner = RecordingKernel()
    found = await Validator(runner).validate(but(targets=(FIRST, in_use(SECOND))), None, NOW)
    assert runner.asked == ["GPU-0"]
    assert message(found, CUDA).endswith("Not tested: 0000:01:00.0 (in use).")


async def test_while_every_card_is_in_use_the_last_result_stays_even_across_agents() -> None:
    before = await Validator(RecordingKernel()).validate(GOOD, None, NOW)
    busy = but(targets=(in_use(FIRST), in_use(SECOND)))
    found = await Validator(RecordingKernel()).validate(busy, before, LATER)
    assert found == before
    assert results(await Validator(RecordingKernel()).validate(busy, None, NOW))[2] is R


async def test_a_result_with_another_driver_proves_nothing() -> None:
    before = msgspec.structs.replace(await Validator(RecordingKernel()).validate(GOOD, None, NOW), driver_version="570")
    busy = but(targets=(in_use(FIRST),))
    assert results(await Validator(RecordingKernel()).validate(busy, before, NOW))[2] is R


async def test_a_card_that_a_process_has_exclusively_is_in_use() -> None:
    runner = RecordingKernel(GPU_1=KernelResult(ok=False, busy=True, message="taken"))
    found = await Validator(runner).validate(GOOD, None, NOW)
    assert results(found)[2] is P
    assert "Not tested: 0000:01:00.0 (in use, in exclusive mode)" in message(found, CUDA)


async def test_a_card_that_failed_stays_failed_while_it_is_in_use() -> None:
    runner = RecordingKernel(GPU_1=KernelResult(ok=False, message="wrong sum"))
    validator = Validator(runner)
    first = await validator.validate(GOOD, None, NOW)
    second = await validator.validate(but(targets=(FIRST, in_use(SECOND))), first, LATER)
    assert (results(second)[2], "wrong sum" in message(second, CUDA)) == (F, True)
    runner.answers = {}
    assert results(await validator.validate(GOOD, second, LATER))[2] is P


async def test_a_failure_with_another_driver_is_forgotten() -> None:
    validator = Validator(RecordingKernel(GPU_1=KernelResult(ok=False, message="wrong sum")))
    first = await validator.validate(GOOD, None, NOW)
    driver = DriverCheck(outcome=passed("loaded"), version="590.1")
    second = await validator.validate(but(driver=driver, targets=(FIRST, in_use(SECOND))), first, LATER)
    assert results(second)[2] is P


async def test_a_simulated_node_says_that_no_kernel_ran() -> None:
    found = await Validator(SimulatedKernel({})).validate(GOOD, None, NOW)
    assert message(found, CUDA).startswith("Simulated, no kernel ran")


async def test_each_step_that_passes_leaves_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "validations"
    container = Origin(DriverSource.CONTAINER, Path("/host/run/nvidia/driver"))
    driver = DriverCheck(outcome=passed("loaded"), version="580.1.2", origin=container)
    await Validator(RecordingKernel()).validate(but(driver=driver, status_files=files(folder)), None, NOW)
    assert names(folder) == ["cuda-ready", "driver-ready", "plugin-ready", "toolkit-ready"]
    assert (folder / "driver-ready").read_text().splitlines() == [
        "IS_HOST_DRIVER=false",
        "NVIDIA_DRIVER_ROOT=/run/nvidia/driver",
        "DRIVER_ROOT_CTR_PATH=/driver-root",
        "NVIDIA_DEV_ROOT=/",
        "DEV_ROOT_CTR_PATH=/host",
    ]


async def test_the_file_of_a_step_that_fails_or_is_skipped_goes(tmp_path: Path) -> None:
    validator = Validator(RecordingKernel())
    before = await validator.validate(but(status_files=files(tmp_path)), None, NOW)
    await validator.validate(but(status_files=files(tmp_path), toolkit=ToolkitFacts()), before, NOW)
    assert names(tmp_path) == ["driver-ready"]


async def test_a_file_is_absent_while_its_check_runs(tmp_path: Path) -> None:
    class Looking(RecordingKernel):
        async def __call__(self, card: str) -> KernelResult:
            assert names(tmp_path) == seen[card]
            return await super().__call__(card)

    seen = {"GPU-0": ["driver-ready", "plugin-ready", "toolkit-ready"]}
    for name in ("driver", "toolkit", "cuda", "plugin"):
        (tmp_path / f"{name}-ready").touch()
    runner = Looking()
    await Validator(runner).validate(but(status_files=files(tmp_path), targets=(FIRST,)), None, NOW)
    assert runner.asked == ["GPU-0"]


async def test_files_that_cannot_be_written_fail_the_step_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "validations").touch()
    found = await Validator(RecordingKernel()).validate(but(status_files=files(tmp_path / "validations")), None, NOW)
    assert results(found) == [F, S, S, S, S, S]
    assert str(tmp_path / "validations") in message(found, DRIVER)
