"""The result of a burn-in: what the program found, and what the card reported meanwhile. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from gpu_control_plane.agent.backends.interface import Readings, Signals
from gpu_control_plane.agent.burnin.program import ProgramRun
from gpu_control_plane.agent.health import HOT_CELSIUS, HealthRules, unseen
from gpu_control_plane.api.names import Reason
from gpu_control_plane.kube.sentences import counted

_REPLACE: Final = "Replace the card, or clear the fault to test it again."
_COOL: Final = "Check its cooling, then clear the fault to test it again."
_AGAIN: Final = "Clear the fault to test it again."
_MAX_CHARACTERS: Final = 512
"""The longest message that a card's history takes."""


class Sample(NamedTuple):
    """The card at one moment of the test."""

    signals: Signals
    readings: Readings


class BurnInResult(msgspec.Struct, frozen=True):
    """Reason and message of the BurnedIn condition."""

    reason: Reason
    message: str

    @property
    def passed(self) -> bool:
        return self.reason is Reason.BURN_IN_PASSED


def fault_during_test(before: Signals, now: Sample, rules: HealthRules) -> BurnInResult | None:
    """A fault that the card did not have before the test, which ends it at once.

    `rules` are those of the card's vendor. Any memory error counts: a new card has none.
    """
    return next(_faults(before, now, rules), None)


def program_result(run: ProgramRun, hottest: int | None) -> BurnInResult:
    """What the program found, if the card itself reported no fault."""
    if run.reason is Reason.BURN_IN_PASSED:
        heat = f" At most {hottest} °C." if hottest is not None else ""
        return BurnInResult(run.reason, f"{run.message}{heat}"[:_MAX_CHARACTERS])
    advice = _AGAIN if run.reason is Reason.BURN_IN_FAILED else _REPLACE
    return BurnInResult(run.reason, f"{run.message[: _MAX_CHARACTERS - len(advice) - 1]} {advice}")


def _faults(before: Signals, now: Sample, rules: HealthRules) -> Iterator[BurnInResult]:
    """The worst first."""
    signals, temperature = now.signals, now.readings.temperature
    codes = unseen(before.xids, signals.xids)
    errors = signals.uncorrected_ecc - before.uncorrected_ecc
    if signals.lost:
        yield _failed(Reason.BURN_IN_FAILED, "the card no longer answers on the PCI bus", "Reseat it.", _AGAIN)
    if errors > 0:
        yield _failed(Reason.MEMORY_ERRORS, counted(errors, "uncorrected memory error"), _REPLACE)
    if (signals.remap_failed and not before.remap_failed) or (signals.remap_pending and not before.remap_pending):
        yield _failed(Reason.MEMORY_ERRORS, "a row of memory went bad", _REPLACE)
    yield from (
        _failed(Reason.MEMORY_ERRORS, f"{rules.name(code)}, a memory error", _REPLACE)
        for code in codes
        if rules.is_memory_error(code)
    )
    if signals.overheated and not before.overheated:
        yield _failed(Reason.TOO_HOT, "the card slowed itself down because it was too hot", _COOL)
    if temperature is not None and temperature >= HOT_CELSIUS:
        yield _failed(Reason.TOO_HOT, f"the card reached {temperature} °C", _COOL)
    yield from (
        _failed(Reason.BURN_IN_FAILED, rules.name(code), "Look it up.", _AGAIN)
        for code in codes
        if rules.faults((code,))
    )


def _failed(reason: Reason, what: str, *advice: str) -> BurnInResult:
    return BurnInResult(reason, " ".join((f"During the test: {what}.", *advice)))
