"""Has a kernel run on a card, in a process that may crash or hang without anybody else noticing.

The program is the vendor's. It is told the UUID or PCI address of a card as its last argument, and its last line of
output is JSON: `ok`, and where that is false `message`, a sentence, and `busy` if somebody has the card to himself.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from gpu_control_plane.agent.programs import ADVICE, run_program


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """How the kernel ended on one card."""

    ok: bool
    message: str = ""
    """What went wrong and what to do."""
    busy: bool = False
    """Nothing is known: somebody has the card to himself."""
    simulated: bool = False
    """No kernel ran anywhere."""


class Runner(Protocol):
    """Runs the kernel on the card, or MIG instance, with this UUID or PCI address."""

    async def __call__(self, card: str) -> Proof: ...


class _Answer(msgspec.Struct):
    ok: bool
    busy: bool = False
    message: str = ""


class KernelRunner:
    """Runs the kernel for real. `command` says how the program is started; asked each time: a driver may come later."""

    def __init__(self, command: Callable[[], Sequence[str] | None], *, seconds: float = 60.0) -> None:
        self._command = command
        self._seconds = seconds

    async def __call__(self, card: str) -> Proof:
        command = await asyncio.to_thread(self._command)
        if command is None:
            return Proof(ok=False, message="There is no program that checks cards of this vendor.")
        found = await run_program((*command, card), seconds=self._seconds)
        if found.trouble:
            return Proof(ok=False, message=f"The program that runs the kernel {found.trouble}")
        return _read(found.line)


class SimulatedRunner:
    """Answers as a document says; no kernel runs, and every answer says so."""

    def __init__(self, broken: Mapping[str, str]) -> None:
        self._broken = broken
        """What is wrong with the cards that are to fail, by UUID or PCI address."""

    async def __call__(self, card: str) -> Proof:
        wrong = self._broken.get(card)
        return Proof(ok=wrong is None, message=wrong or "", simulated=True)


def _read(line: bytes) -> Proof:
    try:
        answer = msgspec.json.decode(line, type=_Answer)
    except msgspec.DecodeError:
        return Proof(ok=False, message=f"The program that runs the kernel cannot be understood: it said {line!r}.")
    wrong = not answer.ok and not answer.busy
    return Proof(ok=answer.ok, busy=answer.busy, message=f"{answer.message}. {ADVICE}" if wrong else answer.message)
