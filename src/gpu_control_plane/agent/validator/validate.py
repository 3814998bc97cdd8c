"""Goes through the checks of a node in order and says what came of them.

A check that fails makes the later ones pointless: they are skipped. Cards in use are left alone: a kernel on them
would cost their users time, and one that runs there proves as much.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.agent.validator.observe import PluginFacts, ToolkitFacts
from gpu_control_plane.agent.validator.runner import Proof, Runner
from gpu_control_plane.agent.validator.steps import (
    DRIVER,
    PLUGIN,
    TOOLKIT,
    check_kernel,
    check_plugin,
    check_toolkit,
)
from gpu_control_plane.agent.validator.targets import Target
from gpu_control_plane.agent.vendors.interface import DriverCheck, Outcome, StatusFiles, failed
from gpu_control_plane.api.gpunodestate import StepResult, Validation, ValidationStep

_LONGEST: Final = 1024
_OFF: Final = Outcome(StepResult.SKIPPED, "Switched off.")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the checks look at, gathered before they begin."""

    driver: DriverCheck
    toolkit: ToolkitFacts
    plugin: PluginFacts
    kernel_step: str | None = None
    """What the vendor calls the check that runs a kernel; None where it has none."""
    targets: Sequence[Target] = ()
    extras: Mapping[str, Outcome | None] = {}
    """What the vendor's further checks found, by name; None for those that are switched off."""
    status_files: StatusFiles | None = None

    @property
    def steps(self) -> tuple[str, ...]:
        """All checks, in their order."""
        return (DRIVER, TOOLKIT, *((self.kernel_step,) if self.kernel_step else ()), PLUGIN, *self.extras)


class Validator:
    """Checks one node. What a kernel proved about a card counts until the card can be tested again."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._proofs: dict[str, Proof] = {}
        self._proven_with: str | None = None
        """The driver with which the kernels ran."""

    async def validate(self, facts: Facts, held: Validation | None, now: datetime) -> Validation:
        """The results, in order. `held` is what the node's status says now: what stays the same keeps its time."""
        outcomes: dict[str, Outcome] = {}
        broken: str | None = None
        for step in facts.steps:
            if facts.extras.get(step, _OFF) is None:
                outcomes[step] = _OFF
                continue
            outcomes[step] = await self._outcome(step, facts, held, broken)
            if outcomes[step].result is StepResult.FAILED:
                broken = step
        return merged(outcomes, facts.driver.version, held, now)

    async def _outcome(self, step: str, facts: Facts, held: Validation | None, broken: str | None) -> Outcome:
        files = facts.status_files
        problem = await _done(lambda: files.withdraw(step)) if files is not None else None
        if broken is not None:
            return Outcome(StepResult.SKIPPED, f"Not checked, since the check of {broken} failed.")
        outcome = problem or await self._check(step, facts, held)
        if files is not None and outcome.result is StepResult.PASSED:
            problem = await _done(lambda: files.publish(step, facts.driver))
        return problem or outcome

    async def _check(self, step: str, facts: Facts, held: Validation | None) -> Outcome:
        if step == DRIVER:
            return facts.driver.outcome
        if step == TOOLKIT:
            return check_toolkit(facts.toolkit)
        if step == PLUGIN:
            return check_plugin(facts.plugin)
        return facts.extras.get(step) or await self._kernel(step, facts, held)

    async def _kernel(self, step: str, facts: Facts, held: Validation | None) -> Outcome:
        """Card after card: together they would compete for the processor, and nobody waits for this."""
        if self._proven_with != facts.driver.version:
            self._proofs, self._proven_with = {}, facts.driver.version
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
        return check_kernel(proofs, untested, _before(step, held, facts.driver.version))


def merged(
    outcomes: Mapping[str, Outcome], driver_version: str | None, held: Validation | None, now: datetime
) -> Validation:
    """The results as the node's status tells them; the time of a step moves only with its result."""
    before = {step.name: step for step in held.steps} if held else {}
    steps = []
    for name, outcome in outcomes.items():
        old = before.get(name)
        at = old.at if old is not None and old.result is outcome.result else None
        at = at or now.replace(microsecond=0)
        steps.append(ValidationStep(name=name, result=outcome.result, message=outcome.message[:_LONGEST], at=at))
    return Validation(driver_version=driver_version, steps=tuple(steps))


async def _done(change: Callable[[], None]) -> Outcome | None:
    """Change the file of a step; what went wrong with that, if anything."""
    try:
        await asyncio.to_thread(change)
    except OSError as error:
        return failed(f"{error.strerror}: {error.filename}. Others wait for this file: make its folder writable.")
    return None


def _before(name: str, held: Validation | None, driver_version: str | None) -> Outcome | None:
    """What is known of this check from an earlier run, perhaps of an earlier agent, with the same driver."""
    if held is None or held.driver_version != driver_version:
        return None
    step = next((step for step in held.steps if step.name == name), None)
    return Outcome(step.result, step.message or "") if step is not None else None
