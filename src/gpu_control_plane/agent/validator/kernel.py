"""Runs a kernel on a card: the vendor's program in a process of its own, whose crash or hang does not affect the agent.

The program gets the UUID or PCI address of a card as its last argument. Its last line of output is JSON: `ok`, and if
that is false `message`, a sentence, and `busy` if another process has the card exclusively.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from gpu_control_plane.agent.programs import ADVICE, run_program


class KernelResult(msgspec.Struct, frozen=True, kw_only=True):
    """How the kernel ended on one card."""

    ok: bool
    message: str = ""
    """What went wrong and what to do."""
    busy: bool = False
    """There is no result: another process has the card exclusively."""
    simulated: bool = False
    """The card is simulated: no kernel ran."""


class KernelRun(Protocol):
    """Runs a kernel on the card or MIG instance with this UUID or PCI address."""

    async def __call__(self, card: str) -> KernelResult: ...


class _Answer(msgspec.Struct):
    ok: bool
    busy: bool = False
    message: str = ""


class VendorKernel:
    """Runs the vendor's program. `command` is called each time, since a driver may be installed later."""

    def __init__(self, command: Callable[[], Sequence[str] | None], *, seconds: float = 60.0) -> None:
        self._command = command
        self._seconds = seconds

    async def __call__(self, card: str) -> KernelResult:
        command = await asyncio.to_thread(self._command)
        if command is None:
            return KernelResult(ok=False, message="There is no program that checks cards of this vendor.")
        found = await run_program((*command, card), seconds=self._seconds)
        if found.trouble:
            return KernelResult(ok=False, message=f"The program that runs the kernel {found.trouble}")
        return _read(found.line)


class SimulatedKernel:
    """No kernel runs; every result says so."""

    def __init__(self, broken: Mapping[str, str]) -> None:
        self._broken = broken
        """The messages of the cards that fail, by UUID or PCI address."""

    async def __call__(self, card: str) -> KernelResult:
        wrong = self._broken.get(card)
        return KernelResult(ok=wrong is None, message=wrong or "", simulated=True)


def _read(line: bytes) -> KernelResult:
    try:
        answer = msgspec.json.decode(line, type=_Answer)
    except msgspec.DecodeError:
        return KernelResult(
            ok=False, message=f"The program that runs the kernel cannot be understood: it said {line!r}."
        )
    wrong = not answer.ok and not answer.busy
    return KernelResult(
        ok=answer.ok, busy=answer.busy, message=f"{answer.message}. {ADVICE}" if wrong else answer.message
    )
