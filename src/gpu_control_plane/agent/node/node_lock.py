"""One agent for each kubelet: a lock on a file beside the sockets of device plugins.

The kernel gives the lock back when its process ends, however it ends. Whoever comes second waits, and serves nothing
meanwhile. An agent whose lock file was replaced under it, and so may have a successor, must not register any more.
"""

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog

from gpu_control_plane.agent.kubelet.interface import PluginError

FILE_NAME: Final = "agent.lock"
_RETRY_SECONDS: Final = 1.0
_CHECK_SECONDS: Final = 15.0
"""How often it is checked that the lock is still the one."""

_log = structlog.get_logger(component="agent.node_lock")


class NodeLock:
    """The lock of one kubelet's agent."""

    def __init__(self, folder: Path, owner: str, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._path = folder / FILE_NAME
        self._owner = owner
        self._sleep = sleep
        self._descriptor: int | None = None
        self._held = asyncio.Event()

    @property
    def held(self) -> bool:
        """Whether this process, and no other, is the node's agent: the file that it locked is still the one."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def problem(self) -> str | None:
        """Why this agent serves nothing; None if it may."""
        return None if self._descriptor is not None else "another agent serves this node"

    async def run(self) -> None:
        """Take the lock, waiting for as long as another process has it, and keep it until cancelled. Raises PluginError
        when it was lost: a new process takes it again, or waits."""
        told = False
        while not self.take():
            if not told:
                _log.warning("another agent serves this node; waiting until it ends", agent=self._holder())
                told = True
            await self._sleep(_RETRY_SECONDS)
        if told:
            _log.info("the other agent has ended")
        self._held.set()
        try:
            while self.held:
                await self._sleep(_CHECK_SECONDS)
            raise PluginError(f"{self._path} was removed or replaced: another agent may serve this node now")
        finally:
            self.release()

    def take(self) -> bool:
        """Take the lock, unless another process has it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{self._owner}\n".encode())
        self._descriptor = descriptor
        return True

    async def wait(self) -> None:
        """Until the lock is taken."""
        await self._held.wait()

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _holder(self) -> str:
        return self._path.read_text(errors="replace").strip()
