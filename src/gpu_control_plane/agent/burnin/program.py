"""Runs the burn-in of a card: the vendor's program in a process of its own, or nothing for simulated cards.

The program gets the UUID of a card and `--seconds` as arguments, and exits when its standard input is closed. Its last
line of output is JSON: `ok`; if that is true, `memoryMiB` and `turns` say what was tested and how often; else `message`
is a sentence, `stage` is `memory` or `compute` if that is what failed, and `busy` says that another process has the
card exclusively.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from gpu_control_plane.agent.programs import ADVICE, run_program
from gpu_control_plane.api.names import Reason

_EXTRA_SECONDS: Final = 120.0
"""Time beyond that of the test: for starting, for compiling, and for finishing a turn on a slow card."""
_SIMULATED_SPEEDUP: Final = 20.0
"""How much faster than a real card a simulated one is tested."""

_REASONS: Final = {"memory": Reason.MEMORY_ERRORS, "compute": Reason.COMPUTE_ERRORS}


class ProgramRun(msgspec.Struct, frozen=True, kw_only=True):
    """How the program ended."""

    reason: Reason = Reason.BURN_IN_PASSED
    message: str
    """What was tested, or what went wrong and what to do."""
    busy: bool = False
    """There is no result: another process has the card exclusively."""


class BurnInProgram(Protocol):
    """Tests the card with this UUID for so many seconds."""

    async def __call__(self, card: str, seconds: float, /) -> ProgramRun: ...


class _Answer(msgspec.Struct, rename={"memory_mib": "memoryMiB"}):
    ok: bool
    busy: bool = False
    stage: str = ""
    message: str = ""
    memory_mib: int = 0
    turns: int = 0


class VendorBurnIn:
    """Runs the vendor's program. `command` is called each time, since a driver may be installed later."""

    def __init__(self, command: Callable[[], Sequence[str] | None], *, extra_seconds: float = _EXTRA_SECONDS) -> None:
        self._command = command
        self._extra_seconds = extra_seconds

    async def __call__(self, card: str, seconds: float) -> ProgramRun:
        command = await asyncio.to_thread(self._command)
        if command is None:
            message = "There is no program that tests cards of this vendor: switch burn-in off."
            return ProgramRun(reason=Reason.BURN_IN_FAILED, message=message)
        words = (*command, card, "--seconds", f"{seconds:g}")
        answer = await run_program(words, seconds=seconds + self._extra_seconds)
        if answer.trouble:
            return ProgramRun(reason=Reason.BURN_IN_FAILED, message=f"The test {answer.trouble}")
        return _read(answer.line, seconds)


async def simulated_burn_in(_card: str, seconds: float) -> ProgramRun:
    """A simulated card takes some time; a fault that it has shows in its signals."""
    await asyncio.sleep(seconds / _SIMULATED_SPEEDUP)
    return ProgramRun(message="Simulated: nothing was computed on the card.")


def _read(line: bytes, seconds: float) -> ProgramRun:
    try:
        answer = msgspec.json.decode(line, type=_Answer)
    except msgspec.DecodeError:
        return ProgramRun(reason=Reason.BURN_IN_FAILED, message=f"The test cannot be understood: it said {line!r}.")
    if answer.ok:
        done = f"{answer.memory_mib} MiB of memory and all processors, {answer.turns} times over in {seconds:g} s"
        return ProgramRun(message=f"Tested {done}: nothing was wrong.")
    if answer.busy:
        return ProgramRun(message=answer.message, busy=True)
    reason = _REASONS.get(answer.stage, Reason.BURN_IN_FAILED)
    return ProgramRun(
        reason=reason, message=f"{answer.message}. {ADVICE if reason is Reason.BURN_IN_FAILED else ''}".strip()
    )
