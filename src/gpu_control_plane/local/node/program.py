"""One of a node's programs: started, stopped, crashed and started again without touching the others."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from gpu_control_plane.local import processes
from gpu_control_plane.local.errors import ComponentFailed
from gpu_control_plane.local.logs import tail
from gpu_control_plane.local.progress import seconds

_POLL = 0.05
_PATIENCE = 10.0


class NodeProgram:
    """`start`, `stop` and `restart` return when it is so: the program answers, or it is gone."""

    def __init__(
        self,
        title: str,
        log: Path,
        start: Callable[[Path], subprocess.Popen[bytes]],
        ready: Callable[[], bool],
        timeout: float,
    ) -> None:
        self.log = log
        self._title = title
        self._start = start
        self._ready = ready
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, unless it runs, and wait until it is ready."""
        self.launch()
        deadline = time.monotonic() + self._timeout
        while not (self.running and self._ready()):
            if not self.running or time.monotonic() >= deadline:
                raise self._failure()
            time.sleep(_POLL)

    def launch(self) -> None:
        """Start it, unless it runs, without waiting: for when it cannot become ready yet."""
        if not self.running:
            self._process = self._start(self.log)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop it and wait until it is gone. SIGKILL makes it a crash."""
        if self._process:
            processes.end(self._process, number, patience=_PATIENCE)

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.stop(number)
        self.start()

    def _failure(self) -> ComponentFailed:
        code = self._process.poll() if self._process else None
        happened = (
            f"was not ready after {seconds(self._timeout)}"
            if code is None
            else f"ended: {processes.describe_exit(code)}"
        )
        return ComponentFailed(f"{self._title} {happened}. The end of {self.log}:\n{tail(self.log)}")
