"""Two agents never serve one kubelet."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from gpu_control_plane.agent.kubelet.interface import PluginError
from gpu_control_plane.agent.node.node_lock import FILE_NAME, NodeLock
from waiting import until


async def quickly(_seconds: float) -> None:
    await asyncio.sleep(0.001)


def lock(folder: Path, owner: str = "agent") -> NodeLock:
    return NodeLock(folder / "state", owner, sleep=quickly)


async def ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_the_second_agent_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    first, second = lock(tmp_path, "first"), lock(tmp_path, "second")
    serving = asyncio.create_task(first.run())
    await first.wait()
    waiting = asyncio.create_task(second.run())
    await asyncio.sleep(0.05)
    assert (first.held, second.held) == (True, False)
    assert (first.problem(), second.problem()) == (None, "another agent serves this node")
    await ended(serving)
    await until(lambda: second.held)
    assert (tmp_path / "state" / FILE_NAME).read_text() == "second\n"
    await ended(waiting)


async def test_an_agent_whose_lock_was_replaced_ends_and_may_not_register_meanwhile(tmp_path: Path) -> None:
    old, new = lock(tmp_path, "old"), lock(tmp_path, "new")
    serving = asyncio.create_task(old.run())
    await old.wait()
    (tmp_path / "state" / FILE_NAME).unlink()
    replacing = asyncio.create_task(new.run())
    await new.wait()
    assert (old.held, new.held) == (False, True)
    with pytest.raises(PluginError, match="another agent"):
        await serving
    await ended(replacing)
