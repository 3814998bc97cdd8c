"""Has a card burned in: by the vendor's program, in a process of its own, or played where cards are simulated.

The program is told the UUID of a card and `--seconds`, ends with its standard input, and its last line of output is
JSON: `ok`; with it `memoryMiB` and `turns`, what was tested and how often; without it `message`, a sentence, `stage`,
which is `memory` or `compute` where that is what failed, and `busy` if somebody has the card to himself.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from gpu_control_plane.agent.programs import ADVICE, run_program
from gpu_control_plane.api.names import Reason

_PATIENCE: Final = 120.0
"""Seconds beyond those ordered: for starting, for compiling, and for finishing a turn on a slow card."""
_QUICKER: Final = 20.0
"""How much quicker than real ones simulated cards are done."""

_REASONS: Final = {"memory": Reason.MEMORY_ERRORS, "compute": Reason.COMPUTE_ERRORS}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """How the program ended on one card."""

    reason: Reason = Reason.BURN_IN_PASSED
    message: str
    """What was done, or what went wrong and what to do."""
    busy: bool = False
    """Nothing is known: somebody has the card to himself."""


class Runner(Protocol):
    """Burns in the card with this UUID for so many seconds."""

    async def __call__(self, card: str, seconds: float, /) -> Run: ...


class _Answer(msgspec.Struct, rename={"memory_mib": "memoryMiB"}):
    ok: bool
    busy: bool = False
    stage: str = ""
    message: str = ""
    memory_mib: int = 0
    turns: int = 0


class ProgramRunner:
    """Runs the program for real. `command` says how it is started; asked each time: a driver may come later."""

    def __init__(self, command: Callable[[], Sequence[str] | None], *, patience: float = _PATIENCE) -> None:
        self._command = command
        self._patience = patience

    async def __call__(self, card: str, seconds: float) -> Run:
        command = await asyncio.to_thread(self._command)
        if command is None:
            message = "There is no program that tests cards of this vendor: switch burn-in off."
            return Run(reason=Reason.BURN_IN_FAILED, message=message)
        words = (*command, card, "--seconds", f"{seconds:g}")
        answer = await run_program(words, seconds=seconds + self._patience)
        if answer.trouble:
            return Run(reason=Reason.BURN_IN_FAILED, message=f"The test {answer.trouble}")
        return _read(answer.line, seconds)


async def play(_card: str, seconds: float) -> Run:
    """A simulated card takes its time; what is wrong with it shows in its signals."""
    await asyncio.sleep(seconds / _QUICKER)
    return Run(message="Played: the card is simulated, and nothing was computed.")


def _read(line: bytes, seconds: float) -> Run:
    try:
        answer = msgspec.json.decode(line, type=_Answer)
    except msgspec.DecodeError:
        return Run(reason=Reason.BURN_IN_FAILED, message=f"The test cannot be understood: it said {line!r}.")
    if answer.ok:
        done = f"{answer.memory_mib} MiB of memory and all processors, {answer.turns} times over in {seconds:g} s"
        return Run(message=f"Tested {done}: nothing was wrong.")
    if answer.busy:
        return Run(message=answer.message, busy=True)
    reason = _REASONS.get(answer.stage, Reason.BURN_IN_FAILED)
    return Run(reason=reason, message=f"{answer.message}. {ADVICE if reason is Reason.BURN_IN_FAILED else ''}".strip())
