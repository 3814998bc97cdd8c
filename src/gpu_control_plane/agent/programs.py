"""Runs a program of ours in a process that may crash or hang without anybody else noticing.

The program's standard input is a pipe that says nothing and ends when we do: a program that runs for long watches it
(`die_with_parent`), so that it does not go on alone when the agent is killed.
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
    """How a program ended: its last line, if it had anything to say, or what became of it instead."""

    line: bytes = b""
    trouble: str = ""
    """A sentence about a program that gave no answer."""


async def run_program(command: Sequence[str], *, seconds: float) -> Answer:
    """Run it to its end, for so long at most; whoever gives up waiting leaves nothing of it behind."""
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
            output, errors = await asyncio.gather(_all(process.stdout), _all(process.stderr))
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


def die_with_parent() -> None:
    """In the program: end at once when whoever started it is gone, whatever it is doing."""

    def watch() -> None:
        while os.read(0, 1):  # not through sys.stdin, whose lock would be missed at the end of the program
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


async def _all(stream: asyncio.StreamReader | None) -> bytes:
    return await stream.read() if stream else b""


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it and everything it started. One that hangs in the kernel cannot even be killed: it is left behind."""
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
