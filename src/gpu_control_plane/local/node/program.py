"""A program of a node: started, stopped, killed and restarted without touching the others."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from gpu_control_plane.local import processes
from gpu_control_plane.local.components import Health
from gpu_control_plane.local.errors import ComponentFailed
from gpu_control_plane.local.logs import tail
from gpu_control_plane.local.progress import duration

_POLL_SECONDS = 0.05
_TIMEOUT_SECONDS = 20.0


class ProgramInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a program before it runs."""

    node: str
    program: str
    log: Path
    version: str = ""
    address: str = ""
    health: Health | None = None
    """Its health check, where it has one."""


class NodeProgram:
    """`start` and `restart` return when the program is ready, `stop` when it is gone."""

    def __init__(
        self,
        info: ProgramInfo,
        start: Callable[[Path], subprocess.Popen[bytes]],
        ready: Callable[[], bool],
        timeout: float,
    ) -> None:
        self.name = f"{info.node}/{info.program}"
        self.log = info.log
        self.version = info.version
        self.address = info.address
        self.health = info.health
        self._title = f"{info.program} of {info.node}"
        self._start = start
        self._ready = ready
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs or when it was never started."""
        return self._process.poll() if self._process else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    def healthy(self) -> bool:
        return self.running and self._ready()

    def start(self) -> None:
        """Start it, unless it runs, and wait until it is ready."""
        self.launch()
        deadline = time.monotonic() + self._timeout
        while not self.healthy():
            if not self.running or time.monotonic() >= deadline:
                raise self._failure()
            time.sleep(_POLL_SECONDS)

    def launch(self) -> None:
        """Start it, unless it runs, without waiting until it is ready."""
        if not self.running:
            self._process = self._start(self.log)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop it and wait until it is gone. SIGKILL makes it a crash."""
        if self._process:
            processes.end(self._process, number, timeout=_TIMEOUT_SECONDS)
            processes.await_group_end(self._process, _TIMEOUT_SECONDS)

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.stop(number)
        self.start()

    def _failure(self) -> ComponentFailed:
        outcome = (
            f"was not ready after {duration(self._timeout)}"
            if self.exit_code is None
            else f"ended: {processes.describe_exit(self.exit_code)}"
        )
        return ComponentFailed(f"{self._title} {outcome}. The end of {self.log}:\n{tail(self.log)}")
