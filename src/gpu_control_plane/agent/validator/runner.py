"""Has a kernel run on a card, in a process that may crash or hang without anybody else noticing."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

_COMMAND: Final = (sys.executable, "-m", "gpu_control_plane.agent.validator.cuda")
_KILL_SECONDS: Final = 5.0
_ADVICE: Final = "Look for XID errors in the node's kernel log; reset the card, or restart the node."


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
    """Runs the kernel for real."""

    def __init__(
        self, library: Path | None = None, *, seconds: float = 60.0, command: Sequence[str] = _COMMAND
    ) -> None:
        self._library = ("--library", str(library)) if library else ()
        self._seconds = seconds
        self._command = command

    async def __call__(self, card: str) -> Proof:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                card,
                *self._library,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return Proof(ok=False, message=f"The program that runs the kernel could not be started ({error}).")
        try:
            async with asyncio.timeout(self._seconds):
                output, errors = await process.communicate()
        except TimeoutError:
            return Proof(
                ok=False,
                message=f"The kernel did not end within {self._seconds:g} s. {_ADVICE}",
            )
        finally:
            await _end(process)
        return _read(process.returncode or 0, output, errors)


class SimulatedRunner:
    """Answers as a document says; no kernel runs, and every answer says so."""

    def __init__(self, broken: Mapping[str, str]) -> None:
        self._broken = broken
        """What is wrong with the cards that are to fail, by UUID or PCI address."""

    async def __call__(self, card: str) -> Proof:
        wrong = self._broken.get(card)
        return Proof(ok=wrong is None, message=wrong or "", simulated=True)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it and everything it started. One that hangs in the kernel cannot even be killed: it is left behind."""
    if process.returncode is not None:
        return
    os.killpg(process.pid, signal.SIGKILL)
    try:
        async with asyncio.timeout(_KILL_SECONDS):
            await process.wait()
    except TimeoutError:
        return


def _read(code: int, output: bytes, errors: bytes) -> Proof:
    if code < 0:
        name = signal.Signals(-code).name
        return Proof(ok=False, message=f"The program that runs the kernel crashed ({name}). Reinstall the driver.")
    line = output.strip().rpartition(b"\n")[2]
    try:
        answer = msgspec.json.decode(line, type=_Answer)
    except msgspec.DecodeError:
        said = errors.decode(errors="replace").strip().rpartition("\n")[2] or "nothing"
        return Proof(
            ok=False, message=f"The program that runs the kernel gave no answer (exit {code}): it said {said}."
        )
    wrong = not answer.ok and not answer.busy
    return Proof(ok=answer.ok, busy=answer.busy, message=f"{answer.message}. {_ADVICE}" if wrong else answer.message)
