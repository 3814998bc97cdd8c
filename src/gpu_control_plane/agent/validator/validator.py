"""Makes the checks of a node in order.

After a check that fails the later ones are skipped. No kernel runs on a card in use: it would slow down the pod that
has it, whose own programs prove as much.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.agent.validator.kernel import KernelResult, KernelRun
from gpu_control_plane.agent.validator.observe import PluginFacts, ToolkitFacts
from gpu_control_plane.agent.validator.steps import (
    DRIVER,
    PLUGIN,
    TOOLKIT,
    check_kernel,
    check_plugin,
    check_toolkit,
)
from gpu_control_plane.agent.validator.targets import Target
from gpu_control_plane.agent.vendors.interface import CheckOutcome, DriverCheck, StatusFiles, failed
from gpu_control_plane.api.gpunodestate import StepResult, Validation, ValidationStep

_MAX_CHARACTERS: Final = 1024
_OFF: Final = CheckOutcome(StepResult.SKIPPED, "Switched off.")


class CheckFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the checks need, read before they begin."""

    driver: DriverCheck
    toolkit: ToolkitFacts
    plugin: PluginFacts
    kernel_step: str | None = None
    """The vendor's name of the check that runs a kernel; None if it has none."""
    targets: Sequence[Target] = ()
    extras: Mapping[str, CheckOutcome | None] = {}
    """The outcomes of the vendor's further checks, by name; None for those that are switched off."""
    status_files: StatusFiles | None = None

    @property
    def steps(self) -> tuple[str, ...]:
        """All checks, in their order."""
        return (DRIVER, TOOLKIT, *((self.kernel_step,) if self.kernel_step else ()), PLUGIN, *self.extras)


class Validator:
    """Checks one node. The result of a kernel on a card counts until the card can be tested again."""

    def __init__(self, runner: KernelRun) -> None:
        self._runner = runner
        self._results: dict[str, KernelResult] = {}
        self._results_of: str | None = None
        """The driver version with which the kernels ran."""

    async def validate(self, facts: CheckFacts, held: Validation | None, now: datetime) -> Validation:
        """The steps in order. `held` is what the node's status has now: a step with the same result keeps its time."""
        outcomes: dict[str, CheckOutcome] = {}
        broken: str | None = None
        for step in facts.steps:
            if facts.extras.get(step, _OFF) is None:
                outcomes[step] = _OFF
                continue
            outcomes[step] = await self._outcome(step, facts, held, broken)
            if outcomes[step].result is StepResult.FAILED:
                broken = step
        return merged(outcomes, facts.driver.version, held, now)

    async def _outcome(self, step: str, facts: CheckFacts, held: Validation | None, broken: str | None) -> CheckOutcome:
        files = facts.status_files
        problem = await _change_file(lambda: files.withdraw(step)) if files is not None else None
        if broken is not None:
            return CheckOutcome(StepResult.SKIPPED, f"Not checked, since the check of {broken} failed.")
        outcome = problem or await self._check(step, facts, held)
        if files is not None and outcome.result is StepResult.PASSED:
            problem = await _change_file(lambda: files.publish(step, facts.driver))
        return problem or outcome

    async def _check(self, step: str, facts: CheckFacts, held: Validation | None) -> CheckOutcome:
        if step == DRIVER:
            return facts.driver.outcome
        if step == TOOLKIT:
            return check_toolkit(facts.toolkit)
        if step == PLUGIN:
            return check_plugin(facts.plugin)
        return facts.extras.get(step) or await self._kernel(step, facts, held)

    async def _kernel(self, step: str, facts: CheckFacts, held: Validation | None) -> CheckOutcome:
        """One card after the other: at the same time the programs would compete for the processor."""
        if self._results_of != facts.driver.version:
            self._results, self._results_of = {}, facts.driver.version
        results: dict[str, KernelResult] = {}
        untested: dict[str, str] = {}
        for target in facts.targets:
            if target.obstacle is None:
                found = await self._runner(target.device)
                if not found.busy:
                    self._results[target.device] = results[target.address] = found
                    continue
            untested[target.address] = target.obstacle or "in use, in exclusive mode"
            known = self._results.get(target.device)
            if known is not None and not known.ok:
                results[target.address] = known
        return check_kernel(results, untested, _before(step, held, facts.driver.version))


def merged(
    outcomes: Mapping[str, CheckOutcome], driver_version: str | None, held: Validation | None, now: datetime
) -> Validation:
    """The steps as the node's status has them; the time of a step changes only with its result."""
    before = {step.name: step for step in held.steps} if held else {}
    steps = []
    for name, outcome in outcomes.items():
        old = before.get(name)
        at = old.at if old is not None and old.result is outcome.result else None
        at = at or now.replace(microsecond=0)
        steps.append(ValidationStep(name=name, result=outcome.result, message=outcome.message[:_MAX_CHARACTERS], at=at))
    return Validation(driver_version=driver_version, steps=tuple(steps))


async def _change_file(change: Callable[[], None]) -> CheckOutcome | None:
    """Change the status file of a step; the outcome if that fails."""
    try:
        await asyncio.to_thread(change)
    except OSError as error:
        return failed(f"{error.strerror}: {error.filename}. Others wait for this file: make its folder writable.")
    return None


def _before(name: str, held: Validation | None, driver_version: str | None) -> CheckOutcome | None:
    """The outcome of this check in an earlier run with the same driver, perhaps of an earlier agent."""
    if held is None or held.driver_version != driver_version:
        return None
    step = next((step for step in held.steps if step.name == name), None)
    return CheckOutcome(step.result, step.message or "") if step is not None else None
