"""The container runtime of this node: which one, its files, and how to run its programs."""

import enum
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.agent.runtime_record import STATE
from gpu_control_plane.agent.runtimes.configure import RuntimeConfig
from gpu_control_plane.agent.runtimes.containerd import Containerd
from gpu_control_plane.agent.runtimes.crio import Crio
from gpu_control_plane.agent.runtimes.docker import Docker
from gpu_control_plane.agent.runtimes.edit_log import Author, EditLog, RuntimePlace
from gpu_control_plane.agent.runtimes.interface import ContainerRuntime, RuntimeConfigError
from gpu_control_plane.agent.runtimes.restart import restarter

AUTO: Final = "auto"
"""In place of a name: the runtime that serves the kubelet."""
_COMMAND_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 5.0


class RuntimeName(enum.StrEnum):
    CONTAINERD = "containerd"
    DOCKER = "docker"
    CRIO = "crio"


class _Defaults(msgspec.Struct, frozen=True):
    """Where a runtime has its files by default. Its systemd unit has the runtime's name."""

    config: Path
    program: str
    socket: str
    kubelet_socket: str
    """Where it, or what stands between it and the kubelet, serves the kubelet."""


_CONTAINERD_SOCKET: Final = "run/containerd/containerd.sock"
_CRIO_SOCKET: Final = "run/crio/crio.sock"
_DEFAULTS: Final = {
    RuntimeName.CONTAINERD: _Defaults(
        Path("/etc/containerd/config.toml"), "containerd", _CONTAINERD_SOCKET, _CONTAINERD_SOCKET
    ),
    RuntimeName.DOCKER: _Defaults(
        Path("/etc/docker/daemon.json"), "dockerd", "run/docker.sock", "run/cri-dockerd.sock"
    ),
    RuntimeName.CRIO: _Defaults(Path("/etc/crio/crio.conf"), "crio", _CRIO_SOCKET, _CRIO_SOCKET),
}


class RuntimeSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Which container runtime, and where its files are; None for the usual place, or the one it was last found at.

    `host` is where its socket and systemd are found; a command in a container enters the host's file system first.
    """

    runtime: RuntimeName = RuntimeName.CONTAINERD
    config: Path | None = None
    program: str | None = None
    unit: str | None = None
    state: Path = STATE
    host: Path = Path("/")
    author: Author = Author.PERSON

    @property
    def config_file(self) -> Path:
        return Path(self._place.config) if self._place.config else _DEFAULTS[self.runtime].config

    def open(self) -> RuntimeConfig:
        return RuntimeConfig(self._runtime(), self._edit_log, self._place)

    def restarter(self) -> Callable[[], None]:
        """How it is restarted on this node. Docker without `live-restore` would take every container along: it is told
        to read its file again, which covers runtimes, and CDI waits for its next start."""
        place, runtime = self._place, self._runtime()
        reload = isinstance(runtime, Docker) and not runtime.restarts_alone
        socket_path = self.host / _DEFAULTS[self.runtime].socket
        unit = place.unit or str(self.runtime)
        return restarter(unit, socket_path, run_command, self.host / "run/systemd/system", reload=reload)

    @property
    def _edit_log(self) -> EditLog:
        return EditLog(self.state / f"{self.runtime}.json", self.author)

    @property
    def _place(self) -> RuntimePlace:
        known = self._edit_log.place
        return RuntimePlace(
            config=str(self.config) if self.config else known.config,
            program=self.program or known.program,
            unit=self.unit or known.unit,
        )

    def _runtime(self) -> ContainerRuntime:
        config, command = self.config_file, (self._place.program or _DEFAULTS[self.runtime].program,)
        match self.runtime:
            case RuntimeName.CONTAINERD:
                return Containerd(config, run_command, command)
            case RuntimeName.DOCKER:
                return Docker(config, run_command, command)
            case RuntimeName.CRIO:
                return Crio(config, config.parent / "crio.conf.d", run_command, command)


def find_runtime(host: Path) -> RuntimeName:
    """The runtime that serves the kubelet of this node. A containerd beside Docker is Docker's own."""
    found = [name for name, defaults in _DEFAULTS.items() if _answers(host / defaults.kubelet_socket)]
    if RuntimeName.DOCKER in found and RuntimeName.CONTAINERD in found:
        found.remove(RuntimeName.CONTAINERD)
    if len(found) == 1:
        return found[0]
    which = f"Both {' and '.join(found)} answer" if found else "None of containerd, CRI-O and cri-dockerd answers"
    raise RuntimeConfigError(f"{which} at the usual socket. Say which container runtime the kubelet uses.")


def configured_runtimes(state: Path, author: Author | None = None) -> tuple[RuntimeName, ...]:
    """The runtimes of which there is a log of edits in a folder, with `author` only of that one's."""
    logs = {name: EditLog(state / f"{name}.json") for name in RuntimeName}
    return tuple(name for name, log in logs.items() if log.path.exists() and (author is None or log.author is author))


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


def run_command(command: Sequence[str]) -> str:
    """Run a command on this node; returns what it prints."""
    line = " ".join(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeConfigError(f"`{line}` could not be run: {error}") from error
    if done.returncode != 0:
        raise RuntimeConfigError(f"`{line}` failed: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout
