"""Goes through the checks of a node in order and says what came of them.

A check that fails makes the later ones pointless: they are skipped. Cards in use are left alone: a kernel on them
would cost their users time, and one that runs there proves as much.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.agent.validator.files import DriverRoots, StatusFiles
from gpu_control_plane.agent.validator.observe import DriverFacts, PluginFacts, ToolkitFacts
from gpu_control_plane.agent.validator.runner import Proof, Runner
from gpu_control_plane.agent.validator.steps import (
    Outcome,
    Step,
    check_cuda,
    check_driver,
    check_module,
    check_plugin,
    check_toolkit,
    failed,
)
from gpu_control_plane.agent.validator.targets import Target
from gpu_control_plane.api.gpunodestate import StepResult, Validation, ValidationStep

_LONGEST: Final = 1024
_OFF: Final = Outcome(StepResult.SKIPPED, "Switched off.")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the checks look at, gathered before they begin."""

    driver: DriverFacts
    toolkit: ToolkitFacts
    plugin: PluginFacts
    targets: Sequence[Target] = ()
    modules: frozenset[str] = frozenset()
    """Kernel modules that are loaded."""
    nvidia_fs_device: bool = False
    """Whether a device file of nvidia-fs exists."""
    gdrcopy_device: bool = False
    roots: DriverRoots = DriverRoots()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the optional checks are made."""

    nvidia_fs: bool = False
    gdrcopy: bool = False


class Validator:
    """Checks one node. What a kernel proved about a card counts until the card can be tested again."""

    def __init__(self, runner: Runner, files: StatusFiles | None = None, options: Options | None = None) -> None:
        self._runner = runner
        self._files = files
        self._options = options or Options()
        self._proofs: dict[str, Proof] = {}
        self._proven_with: str | None = None
        """The driver with which the kernels ran."""

    async def validate(self, facts: Facts, held: Validation | None, now: datetime) -> Validation:
        """The results, in order. `held` is what the node's status says now: what stays the same keeps its time."""
        outcomes: dict[Step, Outcome] = {}
        broken: Step | None = None
        for name in Step:
            if self._is_off(name):
                outcomes[name] = _OFF
                continue
            outcomes[name] = await self._outcome(name, facts, held, broken)
            if outcomes[name].result is StepResult.FAILED:
                broken = name
        return merged(outcomes, facts.driver.module, held, now)

    def _is_off(self, name: Step) -> bool:
        wanted = {Step.NVIDIA_FS: self._options.nvidia_fs, Step.GDRCOPY: self._options.gdrcopy}
        return not wanted.get(name, True)

    async def _outcome(self, name: Step, facts: Facts, held: Validation | None, broken: Step | None) -> Outcome:
        files = self._files
        problem = await _done(lambda: files.withdraw(name)) if files is not None else None
        if broken is not None:
            return Outcome(StepResult.SKIPPED, f"Not checked, since the check of {broken} failed.")
        outcome = problem or await self._check(name, facts, held)
        if files is not None and outcome.result is StepResult.PASSED:
            problem = await _done(lambda: files.publish(name, facts.roots))
        return problem or outcome

    async def _check(self, name: Step, facts: Facts, held: Validation | None) -> Outcome:
        match name:
            case Step.DRIVER:
                return check_driver(facts.driver)
            case Step.TOOLKIT:
                return check_toolkit(facts.toolkit)
            case Step.CUDA:
                return await self._cuda(facts, held)
            case Step.PLUGIN:
                return check_plugin(facts.plugin)
            case Step.NVIDIA_FS:
                return check_module("nvidia_fs", "nvidia-fs0", facts.modules, device_exists=facts.nvidia_fs_device)
            case Step.GDRCOPY:
                return check_module("gdrdrv", "gdrdrv", facts.modules, device_exists=facts.gdrcopy_device)

    async def _cuda(self, facts: Facts, held: Validation | None) -> Outcome:
        """Card after card: together they would compete for the processor, and nobody waits for this."""
        if self._proven_with != facts.driver.module:
            self._proofs, self._proven_with = {}, facts.driver.module
        proofs: dict[str, Proof] = {}
        untested: dict[str, str] = {}
        for target in facts.targets:
            if target.obstacle is None:
                found = await self._runner(target.device)
                if not found.busy:
                    self._proofs[target.device] = proofs[target.address] = found
                    continue
            untested[target.address] = target.obstacle or "in use, in exclusive mode"
            known = self._proofs.get(target.device)
            if known is not None and not known.ok:
                proofs[target.address] = known
        return check_cuda(proofs, untested, _before(held, facts.driver.module))


def merged(
    outcomes: Mapping[Step, Outcome], driver_version: str | None, held: Validation | None, now: datetime
) -> Validation:
    """The results as the node's status tells them; the time of a step moves only with its result."""
    before = {step.name: step for step in held.steps} if held else {}
    steps = []
    for name, outcome in outcomes.items():
        old = before.get(name)
        at = old.at if old is not None and old.result is outcome.result else None
        at = at or now.replace(microsecond=0)
        steps.append(ValidationStep(name=name.value, result=outcome.result, message=outcome.message[:_LONGEST], at=at))
    return Validation(driver_version=driver_version, steps=tuple(steps))


async def _done(change: Callable[[], None]) -> Outcome | None:
    """Change the file of a step; what went wrong with that, if anything."""
    try:
        await asyncio.to_thread(change)
    except OSError as error:
        return failed(f"{error.strerror}: {error.filename}. Others wait for this file: make its folder writable.")
    return None


def _before(held: Validation | None, driver_version: str | None) -> Outcome | None:
    """What is known of the cuda step from an earlier run, perhaps of an earlier agent, with the same driver."""
    if held is None or held.driver_version != driver_version:
        return None
    step = next((step for step in held.steps if step.name == Step.CUDA), None)
    return Outcome(step.result, step.message or "") if step is not None else None
