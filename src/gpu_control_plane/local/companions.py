"""Programs of ours that live beside a local cluster, such as a controller: started with it, ended with it.

A companion is a file in the cluster's folder. The supervisor reads these files, starts what they name, starts it again
when it ends, and stops it when its file is gone; so a companion survives a restart of the cluster, like data.
"""

import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gpu_control_plane.local import processes
from gpu_control_plane.local.credentials import write_private
from gpu_control_plane.local.identity import ProcessIdentity, identify
from gpu_control_plane.local.restarts import Restarts

_FOLDER = "companions"
_STOP_PATIENCE = 10.0


class Companion(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. The program finds the cluster through `KUBECONFIG`."""

    name: str
    command: tuple[str, ...]
    environ: dict[str, str] = {}


class CompanionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor says about a companion."""

    companion: Companion
    log: Path
    process: ProcessIdentity | None = None
    since: datetime | None = None
    restarts: int = 0
    last_exit: str | None = None


def write_companion(folder: Path, companion: Companion) -> None:
    (folder / _FOLDER).mkdir(exist_ok=True, mode=0o700)
    write_private(folder / _FOLDER / f"{companion.name}.json", msgspec.json.encode(companion))


def remove_companion(folder: Path, name: str) -> None:
    (folder / _FOLDER / f"{name}.json").unlink(missing_ok=True)


def read_companions(folder: Path) -> dict[str, Companion]:
    files = sorted((folder / _FOLDER).glob("*.json"))
    wanted = [msgspec.json.decode(file.read_bytes(), type=Companion) for file in files]
    return {companion.name: companion for companion in wanted}


class _Running(msgspec.Struct):
    companion: Companion
    process: subprocess.Popen[bytes]
    since: datetime
    history: Restarts = Restarts()
    last_exit: str | None = None


class Companions:
    """The supervisor's hand for companions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, _Running] = {}

    def tend(self, *, hurry: bool) -> tuple[CompanionRecord, ...]:
        """Make what runs be what the files name; returns how it stands now."""
        wanted = read_companions(self._folder)
        for name, running in list(self._running.items()):
            if wanted.get(name) != running.companion:
                processes.end(running.process, patience=_STOP_PATIENCE)
                del self._running[name]
        for name, companion in wanted.items():
            if name not in self._running:
                self._running[name] = _Running(companion, self._launch(companion), datetime.now(UTC))
            else:
                self._restart_if_due(self._running[name], hurry=hurry)
        return tuple(self._record(running) for running in self._running.values())

    def stop(self) -> None:
        for running in self._running.values():
            processes.end(running.process, patience=_STOP_PATIENCE)
        self._running.clear()

    def _restart_if_due(self, running: _Running, *, hurry: bool) -> None:
        code = running.process.poll()
        if code is None:
            return
        now = time.monotonic()
        if running.history.next_at is None:
            running.last_exit = processes.describe_exit(code)
            running.history = running.history.died(now)
        if hurry:
            running.history = running.history.hurried(now)
        if running.history.due(now):
            running.process = self._launch(running.companion)
            running.since = datetime.now(UTC)
            running.history = running.history.launched(now)

    def _launch(self, companion: Companion) -> subprocess.Popen[bytes]:
        environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._folder),
            "KUBECONFIG": str(self._folder / "kubeconfig"),
            **companion.environ,
        }
        with self._log(companion.name).open("ab") as log:
            return processes.spawn(companion.command, output=log, environ=environ, cwd=self._folder)

    def _log(self, name: str) -> Path:
        return self._folder / "logs" / f"{name}.log"

    def _record(self, running: _Running) -> CompanionRecord:
        process = identify(running.process.pid) if running.process.poll() is None else None
        return CompanionRecord(
            companion=running.companion,
            log=self._log(running.companion.name),
            process=process,
            since=running.since if process else None,
            restarts=running.history.total,
            last_exit=running.last_exit,
        )
