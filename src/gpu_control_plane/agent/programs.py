"""Runs a vendor's program in a process of its own, whose crash or hang does not affect the agent.

The program's standard input is a pipe that is closed when the agent ends: a program that runs for long watches it
(`exit_with_parent`), so that it does not go on when the agent is killed.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

ADVICE: Final = "Look for the card's errors in the node's kernel log; reset the card, or restart the node."

_KILL_SECONDS: Final = 5.0


class Answer(NamedTuple):
    """How a program ended: its last line, or why there is none."""

    line: bytes = b""
    trouble: str = ""
    """Why the program gave no answer, as the end of a sentence."""


async def run_program(command: Sequence[str], *, seconds: float) -> Answer:
    """Run it to its end, for `seconds` at most. A caller that is cancelled leaves no process behind."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return Answer(trouble=f"could not be started ({error}).")
    try:
        async with asyncio.timeout(seconds):
            output, errors = await asyncio.gather(_read_all(process.stdout), _read_all(process.stderr))
            code = await process.wait()
    except TimeoutError:
        return Answer(trouble=f"did not end within {seconds:g} s. {ADVICE}")
    finally:
        await _end(process)
    if code < 0:
        return Answer(trouble=f"crashed ({signal.Signals(-code).name}). Reinstall the driver.")
    line = output.strip().rpartition(b"\n")[2]
    if not line.startswith(b"{"):
        said = errors.decode(errors="replace").strip().rpartition("\n")[2] or "nothing"
        return Answer(trouble=f"gave no answer (exit {code}): it said {said}.")
    return Answer(line)


def exit_with_parent() -> None:
    """Called by the program: exit at once when the process that started it has ended."""

    def watch() -> None:
        while os.read(0, 1):  # not through sys.stdin, whose lock would be missed at the end of the program
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


async def _read_all(stream: asyncio.StreamReader | None) -> bytes:
    return await stream.read() if stream else b""


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it and everything it started. A process that hangs in the kernel cannot be killed, and is left."""
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is not None:
        return
    os.killpg(process.pid, signal.SIGKILL)
    try:
        async with asyncio.timeout(_KILL_SECONDS):
            await process.wait()
    except TimeoutError:
        return
