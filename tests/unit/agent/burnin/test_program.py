"""What the program answers becomes a reason and a message; a test that is cancelled leaves no process behind."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from gpu_control_plane.agent.burnin.program import VendorBurnIn, simulated_burn_in
from gpu_control_plane.api.names import Reason
from waiting import until

_LASTING = """
import pathlib, os, sys, time
from gpu_control_plane.agent.programs import exit_with_parent
exit_with_parent()
pathlib.Path({pid!r}).write_text(str(os.getpid()))
time.sleep(600)
"""
_PARENT = """
import asyncio, sys
from gpu_control_plane.agent.programs import run_program
asyncio.run(run_program((sys.executable, "-c", {program!r}), seconds=600))
"""


def runner(script: str, *, extra_seconds: float = 30.0) -> VendorBurnIn:
    return VendorBurnIn(lambda: (sys.executable, "-c", script), extra_seconds=extra_seconds)


@pytest.mark.parametrize(
    ("answer", "reason", "said"),
    [
        ('{"ok": true, "memoryMiB": 129024, "turns": 22}', Reason.BURN_IN_PASSED, "Tested 129024 MiB of memory"),
        ('{"ok": false, "stage": "memory", "message": "3 words"}', Reason.MEMORY_ERRORS, "3 words."),
        ('{"ok": false, "stage": "compute", "message": "2 results"}', Reason.COMPUTE_ERRORS, "2 results."),
        (
            '{"ok": false, "stage": "cuInit", "message": "no driver"}',
            Reason.BURN_IN_FAILED,
            "no driver. Look for the",
        ),
        ('{"ok": 7}', Reason.BURN_IN_FAILED, "cannot be understood"),
        ("nonsense", Reason.BURN_IN_FAILED, "The test gave no answer"),
    ],
)
async def test_an_answer_becomes_a_reason(answer: str, reason: Reason, said: str) -> None:
    found = await runner(f"print({answer!r})")("GPU-1", 2.0)
    assert (found.reason, found.busy) == (reason, False)
    assert said in found.message


async def test_a_busy_card_has_failed_nothing() -> None:
    found = await runner('print(\'{"ok": false, "busy": true, "message": "taken"}\')')("GPU-1", 2.0)
    assert (found.reason, found.busy) == (Reason.BURN_IN_PASSED, True)


async def test_the_program_is_told_the_card_and_the_time() -> None:
    script = "import json, sys; print(json.dumps({'ok': False, 'message': ' '.join(sys.argv[1:])}))"
    assert "GPU-1 --seconds 2.5" in (await runner(script)("GPU-1", 2.5)).message


async def test_a_card_that_no_program_can_test_does_not_pass() -> None:
    found = await VendorBurnIn(lambda: None)("GPU-1", 2.5)
    assert (found.reason, "switch burn-in off" in found.message) == (Reason.BURN_IN_FAILED, True)


async def test_a_program_that_does_not_end_is_ended() -> None:
    found = await runner("import time; time.sleep(600)", extra_seconds=0.5)("GPU-1", 0.5)
    assert (found.reason, "did not end within 1 s" in found.message) == (Reason.BURN_IN_FAILED, True)


async def test_a_cancelled_test_leaves_no_process_behind(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    task = asyncio.create_task(runner(_LASTING.format(pid=str(pid)))("GPU-1", 600))
    await until(lambda: pid.exists() and pid.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not _alive(int(pid.read_text()))


async def test_the_program_ends_with_an_agent_that_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = _PARENT.format(program=_LASTING.format(pid=str(pid)))
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    await until(lambda: pid.exists() and pid.read_text())
    agent.send_signal(signal.SIGKILL)
    await agent.wait()
    await until(lambda: not _alive(int(pid.read_text())))


async def test_a_simulated_burn_in_says_that_nothing_was_computed() -> None:
    found = await simulated_burn_in("GPU-1", 0.2)
    assert (found.reason, found.message.startswith("Simulated")) == (Reason.BURN_IN_PASSED, True)


def _alive(pid: int) -> bool:
    """More than a name that its parent has not collected yet."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
