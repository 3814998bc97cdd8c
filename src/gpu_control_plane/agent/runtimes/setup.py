"""The container runtime of this node: which one, its files, and how to run its programs."""

import enum
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.agent.runtimes.configure import RuntimeConfig
from gpu_control_plane.agent.runtimes.containerd import Containerd
from gpu_control_plane.agent.runtimes.crio import Crio
from gpu_control_plane.agent.runtimes.docker import Docker
from gpu_control_plane.agent.runtimes.edit_log import EditLog
from gpu_control_plane.agent.runtimes.interface import ContainerRuntime, RunCommand, RuntimeConfigError
from gpu_control_plane.agent.runtimes.restart import restarter

STATE: Final = Path("/var/lib/gpu-control-plane/runtimes")
"""The log of edits: it must outlive reboots and releases of the agent, or they could not be undone."""
_COMMAND_SECONDS: Final = 60.0


class RuntimeName(enum.StrEnum):
    CONTAINERD = "containerd"
    DOCKER = "docker"
    CRIO = "crio"


class _Defaults(msgspec.Struct, frozen=True):
    """Where a runtime has its files by default. Its systemd unit has the runtime's name."""

    config: Path
    socket: str


_DEFAULTS: Final = {
    RuntimeName.CONTAINERD: _Defaults(Path("/etc/containerd/config.toml"), "run/containerd/containerd.sock"),
    RuntimeName.DOCKER: _Defaults(Path("/etc/docker/daemon.json"), "run/docker.sock"),
    RuntimeName.CRIO: _Defaults(Path("/etc/crio/crio.conf"), "run/crio/crio.sock"),
}


class RuntimeSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Which container runtime, and where its files are.

    `host` is the host's root file system, in which its programs are run. Paths of configuration files are the host's,
    since they name each other: in a container their folder must be mounted at the same path.
    """

    runtime: RuntimeName = RuntimeName.CONTAINERD
    config: Path | None = None
    state: Path = STATE
    host: Path = Path("/")

    @property
    def config_file(self) -> Path:
        return self.config or _DEFAULTS[self.runtime].config

    def open(self) -> RuntimeConfig:
        return RuntimeConfig(self._runtime(), EditLog(self.state / f"{self.runtime}.json"))

    def restarter(self) -> Callable[[], None]:
        """How it is restarted on this node."""
        socket = self.host / _DEFAULTS[self.runtime].socket
        return restarter(self.runtime, socket, self._run, self.host / "run/systemd/system")

    def _runtime(self) -> ContainerRuntime:
        match self.runtime:
            case RuntimeName.CONTAINERD:
                return Containerd(self.config_file, self._run)
            case RuntimeName.DOCKER:
                return Docker(self.config_file, self._run)
            case RuntimeName.CRIO:
                return Crio(self.config_file, self.config_file.parent / "crio.conf.d", self._run)

    @property
    def _run(self) -> RunCommand:
        if self.host == Path("/"):
            return run_command

        def on_host(command: Sequence[str]) -> str:
            return run_command(("chroot", str(self.host), *command))

        return on_host


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
