"""Asks the container runtime itself, over the Container Runtime Interface, how it is set up.

A CDI specification and a runtime's configuration file prove little: what counts are the settings that the running
process has, and containerd tells those in the verbose form of `Status`. CRI-O resolves CDI names always and tells no
more; what a runtime does not tell stays unknown.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import grpc
import msgspec
import structlog

from gpu_control_plane.agent.kubelet.protocol import cri_pb2 as wire
from gpu_control_plane.agent.kubelet.sockets import identity, open_channel

SOCKETS: Final = ("run/containerd/containerd.sock", "run/crio/crio.sock", "run/k3s/containerd/containerd.sock")
"""Where runtimes listen, below the root of the host."""
_TIMEOUT_SECONDS: Final = 5.0

_log = structlog.get_logger(component="agent.kubelet.container_runtime")


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The effective settings of a container runtime; None for what it does not tell."""

    cdi_enabled: bool | None = None
    spec_dirs: tuple[str, ...] | None = None
    """Where it looks for CDI specifications."""
    handlers: frozenset[str] | None = None
    """What a RuntimeClass may name."""


UNKNOWN: Final = RuntimeSettings()


class _Containerd(msgspec.Struct, frozen=True, rename="camel"):
    runtimes: dict[str, msgspec.Raw] = {}


class _Config(msgspec.Struct, frozen=True, rename="camel"):
    enable_cdi: bool | None = msgspec.field(name="enableCDI", default=None)
    cdi_spec_dirs: tuple[str, ...] | None = None
    containerd: _Containerd = _Containerd()


class ContainerRuntime:
    """The container runtime of the node: at the socket `given`, or at one of the usual places below `host`."""

    def __init__(self, host: Path, given: Path | None = None) -> None:
        self._places = (given,) if given is not None else tuple(host / place for place in SOCKETS)

    def identity(self) -> tuple[int, int] | None:
        """Another one after every start of the runtime, which may have been set up differently; None without one."""
        found = self._socket()
        return identity(found) if found is not None else None

    async def settings(self) -> RuntimeSettings:
        """What the runtime says of itself; nothing is known of one that does not answer."""
        path = self._socket()
        if path is None:
            return UNKNOWN
        try:
            answer = await _status(path)
        except grpc.aio.AioRpcError as error:
            why = f"{error.code().name}: {error.details()}"
            _log.info("the container runtime does not say how it is set up", socket=str(path), why=why)
            return UNKNOWN
        return read_settings(answer.info.get("config"), (each.name for each in answer.runtime_handlers))

    def _socket(self) -> Path | None:
        return next((path for path in self._places if path.is_socket()), None)


async def _status(path: Path) -> wire.StatusResponse:
    async with open_channel(f"unix://{path}") as channel:
        call = channel.unary_unary(
            "/runtime.v1.RuntimeService/Status", wire.StatusRequest.SerializeToString, wire.StatusResponse.FromString
        )
        return await call(wire.StatusRequest(verbose=True), timeout=_TIMEOUT_SECONDS)


def read_settings(config: str | None, handlers: Iterable[str]) -> RuntimeSettings:
    """Interpret an answer; `config` is containerd's configuration as JSON."""
    named = frozenset(name for name in handlers if name)
    try:
        found = msgspec.json.decode(config, type=_Config) if config is not None else _Config()
    except msgspec.DecodeError:
        found = _Config()
    dirs = found.cdi_spec_dirs
    return RuntimeSettings(
        # Newer containerd has no switch: without folders it resolves nothing.
        cdi_enabled=False if dirs == () else found.enable_cdi,
        spec_dirs=dirs,
        handlers=(named | found.containerd.runtimes.keys()) or None,
    )
