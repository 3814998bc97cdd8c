"""What a burn-in comes to: the program's word, and what the card showed meanwhile. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from gpu_control_plane.agent.backends.interface import Readings, Signals
from gpu_control_plane.agent.burnin.runner import Run
from gpu_control_plane.agent.health import HOT_CELSIUS, HealthRules, unseen
from gpu_control_plane.api.names import Reason

_REPLACE: Final = "Replace the card, or clear the fault to test it again."
_COOL: Final = "Check its cooling, then clear the fault to test it again."
_AGAIN: Final = "Clear the fault to test it again."
_LONGEST: Final = 512
"""Characters that a card's history has room for."""


class Sample(NamedTuple):
    """The card at one moment of the test."""

    signals: Signals
    readings: Readings


class Outcome(msgspec.Struct, frozen=True):
    """How a burn-in ended, in the words of the condition."""

    reason: Reason
    message: str

    @property
    def passed(self) -> bool:
        return self.reason is Reason.BURN_IN_PASSED


def noticed(before: Signals, now: Sample, rules: HealthRules) -> Outcome | None:
    """What the card shows that it did not show before the test; a reason to end it at once.

    `rules` are those of the card's vendor. Any error of its memory counts: a new card has none.
    """
    return next(_complaints(before, now, rules), None)


def outcome(run: Run, hottest: int | None) -> Outcome:
    """What the program found, where the card itself showed nothing."""
    if run.reason is Reason.BURN_IN_PASSED:
        heat = f" At most {hottest} °C." if hottest is not None else ""
        return Outcome(run.reason, f"{run.message}{heat}"[:_LONGEST])
    advice = _AGAIN if run.reason is Reason.BURN_IN_FAILED else _REPLACE
    return Outcome(run.reason, f"{run.message[: _LONGEST - len(advice) - 1]} {advice}")


def _complaints(before: Signals, now: Sample, rules: HealthRules) -> Iterator[Outcome]:
    """The worst first."""
    signals, temperature = now.signals, now.readings.temperature
    codes = unseen(before.xids, signals.xids)
    errors = signals.uncorrected_ecc - before.uncorrected_ecc
    if signals.lost:
        yield _failed(Reason.BURN_IN_FAILED, "the card no longer answers on the PCI bus", "Reseat it.", _AGAIN)
    if errors > 0:
        yield _failed(Reason.MEMORY_ERRORS, f"{errors} uncorrected memory errors", _REPLACE)
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


def _failed(reason: Reason, what: str, *advice: str) -> Outcome:
    return Outcome(reason, " ".join((f"During the test: {what}.", *advice)))
