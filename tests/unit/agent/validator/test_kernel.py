"""A program that crashes, hangs or answers nonsense is described, and does not affect the agent."""

import asyncio
import sys
from pathlib import Path

import pytest

from gpu_control_plane.agent.validator.kernel import KernelResult, SimulatedKernel, VendorKernel


def runner(script: str, *words: str, seconds: float = 30.0) -> VendorKernel:
    return VendorKernel(lambda: (sys.executable, "-c", script, *words), seconds=seconds)


async def test_the_last_line_of_the_program_is_its_answer() -> None:
    script = 'print(\'noise\'); print(\'{"ok": true, "card": "GPU-1", "kernelSeconds": 1}\')'
    assert await runner(script)("GPU-1") == KernelResult(ok=True)


async def test_a_busy_card_is_no_failure_of_the_card() -> None:
    script = 'import sys; print(\'{"ok": false, "busy": true, "message": "taken"}\'); sys.exit(3)'
    assert await runner(script)("GPU-1") == KernelResult(ok=False, busy=True, message="taken")


async def test_the_program_is_told_the_card_last() -> None:
    script = "import json, sys; print(json.dumps({'ok': False, 'message': ' '.join(sys.argv[1:])}))"
    found = await runner(script, "--library", "/d/libcuda.so.1")("GPU-1")
    assert found.message.startswith("--library /d/libcuda.so.1 GPU-1. Look for the card's errors")


async def test_without_a_program_nothing_is_proven() -> None:
    assert (await VendorKernel(lambda: None)("GPU-1")).ok is False


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed (SIGSEGV)"),
        ("raise RuntimeError('no such thing')", "RuntimeError: no such thing"),
        ("pass", "it said nothing"),
    ],
)
async def test_a_program_that_fails_is_described(script: str, said: str) -> None:
    found = await runner(script)("GPU-1")
    assert (found.ok, found.busy) == (False, False)
    assert said in found.message


async def test_a_program_that_cannot_be_started_is_described() -> None:
    found = await VendorKernel(lambda: ("/nowhere/python",))("GPU-1")
    assert "could not be started" in found.message


async def test_a_program_that_hangs_is_killed_with_everything_it_started(tmp_path: Path) -> None:
    children = tmp_path / "children"
    children.touch()  # a machine that is busy may not even get as far as to start one
    # A shell, since that has begun long before the time is up.
    script = f'sleep 600 & echo "$$ $!" > {children}; wait'
    found = await VendorKernel(lambda: ("/bin/sh", "-c", script), seconds=2.0)("GPU-1")
    assert "did not end within 2 s" in found.message
    for child in map(int, children.read_text().split()):
        await _gone(child)


async def test_a_cancelled_run_leaves_no_process_behind(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    script = f"import os, pathlib, time; pathlib.Path({str(started)!r}).write_text(str(os.getpid())); time.sleep(600)"
    task = asyncio.create_task(runner(script)("GPU-1"))
    while not started.exists() or not started.read_text():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _gone(int(started.read_text()))


async def test_a_simulated_run_says_that_it_is_one() -> None:
    simulated = SimulatedKernel({"GPU-2": "it burns"})
    assert await simulated("GPU-1") == KernelResult(ok=True, simulated=True)
    assert await simulated("GPU-2") == KernelResult(ok=False, message="it burns", simulated=True)


async def _gone(pid: int) -> None:
    while _alive(pid):  # noqa: ASYNC110 - nothing tells when a process that is not our child ends
        await asyncio.sleep(0.01)


def _alive(pid: int) -> bool:
    """More than a name that its parent has not collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
