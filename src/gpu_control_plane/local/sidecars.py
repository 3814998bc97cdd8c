"""Programs that run beside a local cluster, such as the controller: started with it, ended with it.

A sidecar is a file in the cluster's folder. The supervisor reads these files, starts what they name, restarts it
when it ends, and stops it when its file is gone; so a sidecar survives a restart of the cluster, as data does.
"""

import os
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gpu_control_plane.local import processes
from gpu_control_plane.local.credentials import write_private
from gpu_control_plane.local.identity import ProcessIdentity, identify
from gpu_control_plane.local.restarts import Restarts

_FOLDER = "sidecars"
_STOP_TIMEOUT_SECONDS = 10.0


class Sidecar(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. The program finds the cluster through `KUBECONFIG`."""

    name: str
    command: tuple[str, ...]
    environ: dict[str, str] = {}


class SidecarRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor reports about a sidecar."""

    sidecar: Sidecar
    log: Path
    process: ProcessIdentity | None = None
    since: datetime | None = None
    restarts: int = 0
    last_exit: str | None = None


def write_sidecar(folder: Path, sidecar: Sidecar) -> None:
    (folder / _FOLDER).mkdir(exist_ok=True, mode=0o700)
    write_private(folder / _FOLDER / f"{sidecar.name}.json", msgspec.json.encode(sidecar))


def remove_sidecar(folder: Path, name: str) -> None:
    (folder / _FOLDER / f"{name}.json").unlink(missing_ok=True)


def read_sidecars(folder: Path) -> dict[str, Sidecar]:
    files = sorted((folder / _FOLDER).glob("*.json"))
    wanted = [msgspec.json.decode(file.read_bytes(), type=Sidecar) for file in files]
    return {sidecar.name: sidecar for sidecar in wanted}


class _Running(msgspec.Struct):
    sidecar: Sidecar
    process: subprocess.Popen[bytes]
    since: datetime
    history: Restarts = Restarts()
    last_exit: str | None = None


class Sidecars:
    """The sidecars that the supervisor runs."""

    def __init__(self, folder: Path, on_death: Callable[[str, str, Path], None] = lambda *_death: None) -> None:
        """`on_death` is told of every sidecar that has ended by itself: its name, how it ended, and its log."""
        self._folder = folder
        self._on_death = on_death
        self._running: dict[str, _Running] = {}

    def reconcile(self, *, restart_now: bool) -> tuple[SidecarRecord, ...]:
        """Start, restart and stop sidecars so that those run that the files name; returns their state."""
        wanted = read_sidecars(self._folder)
        for name, running in list(self._running.items()):
            if wanted.get(name) != running.sidecar:
                processes.end(running.process, timeout=_STOP_TIMEOUT_SECONDS)
                del self._running[name]
        for name, sidecar in wanted.items():
            if name not in self._running:
                self._running[name] = _Running(sidecar, self._launch(sidecar), datetime.now(UTC))
            else:
                self._restart_if_due(self._running[name], restart_now=restart_now)
        return tuple(self._record(running) for running in self._running.values())

    def stop(self) -> None:
        for running in self._running.values():
            processes.end(running.process, timeout=_STOP_TIMEOUT_SECONDS)
        self._running.clear()

    def _restart_if_due(self, running: _Running, *, restart_now: bool) -> None:
        code = running.process.poll()
        if code is None:
            return
        now = time.monotonic()
        if running.history.next_at is None:
            running.last_exit = processes.describe_exit(code)
            self._on_death(running.sidecar.name, running.last_exit, self._log(running.sidecar.name))
            running.history = running.history.died(now)
        if restart_now:
            running.history = running.history.without_delay(now)
        if running.history.due(now):
            running.process = self._launch(running.sidecar)
            running.since = datetime.now(UTC)
            running.history = running.history.launched(now)

    def _launch(self, sidecar: Sidecar) -> subprocess.Popen[bytes]:
        environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._folder),
            "KUBECONFIG": str(self._folder / "kubeconfig"),
            **sidecar.environ,
        }
        with self._log(sidecar.name).open("ab") as log:
            return processes.spawn(sidecar.command, output=log, environ=environ, cwd=self._folder)

    def _log(self, name: str) -> Path:
        return self._folder / "logs" / f"{name}.log"

    def _record(self, running: _Running) -> SidecarRecord:
        process = identify(running.process.pid) if running.process.poll() is None else None
        return SidecarRecord(
            sidecar=running.sidecar,
            log=self._log(running.sidecar.name),
            process=process,
            since=running.since if process else None,
            restarts=running.history.total,
            last_exit=running.last_exit,
        )
