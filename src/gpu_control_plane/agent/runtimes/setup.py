"""Which container runtime of this node is meant, and where its things are."""

import enum
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.agent.runtimes.commands import run
from gpu_control_plane.agent.runtimes.configure import RuntimeConfig
from gpu_control_plane.agent.runtimes.containerd import Containerd
from gpu_control_plane.agent.runtimes.crio import Crio
from gpu_control_plane.agent.runtimes.docker import Docker
from gpu_control_plane.agent.runtimes.interface import Run, Runtime
from gpu_control_plane.agent.runtimes.ledger import Ledger
from gpu_control_plane.agent.runtimes.restart import restarter

STATE: Final = Path("/var/lib/gpu-control-plane/runtimes")
"""Where it is remembered what was written: it must outlive reboots and releases, or it could not be taken back."""


class RuntimeName(enum.StrEnum):
    CONTAINERD = "containerd"
    DOCKER = "docker"
    CRIO = "crio"


class _Usual(msgspec.Struct, frozen=True):
    """Where a runtime is on most machines. Its systemd unit has its own name."""

    config: Path
    socket: str


_USUAL: Final = {
    RuntimeName.CONTAINERD: _Usual(Path("/etc/containerd/config.toml"), "run/containerd/containerd.sock"),
    RuntimeName.DOCKER: _Usual(Path("/etc/docker/daemon.json"), "run/docker.sock"),
    RuntimeName.CRIO: _Usual(Path("/etc/crio/crio.conf"), "run/crio/crio.sock"),
}


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may choose.

    `host` is where the host's files are; its programs are run there. Configuration files keep their own paths, since
    they name each other: in a container their folder must be mounted at the same place.
    """

    runtime: RuntimeName = RuntimeName.CONTAINERD
    config: Path | None = None
    state: Path = STATE
    host: Path = Path("/")

    @property
    def config_file(self) -> Path:
        return self.config or _USUAL[self.runtime].config

    def open(self) -> RuntimeConfig:
        return RuntimeConfig(self._runtime(), Ledger(self.state / f"{self.runtime}.json"))

    def restarter(self) -> Callable[[], None]:
        """The way to restart it here."""
        socket = self.host / _USUAL[self.runtime].socket
        return restarter(self.runtime, socket, self._run, self.host / "run/systemd/system")

    def _runtime(self) -> Runtime:
        match self.runtime:
            case RuntimeName.CONTAINERD:
                return Containerd(self.config_file, self._run)
            case RuntimeName.DOCKER:
                return Docker(self.config_file, self._run)
            case RuntimeName.CRIO:
                return Crio(self.config_file, self.config_file.parent / "crio.conf.d", self._run)

    @property
    def _run(self) -> Run:
        if self.host == Path("/"):
            return run

        def on_host(command: Sequence[str]) -> str:
            return run(("chroot", str(self.host), *command))

        return on_host
