"""The unix sockets between agent and kubelet: their names, and those that an agent left behind when it was killed."""

import contextlib
import hashlib
import re
import socket
import stat
from pathlib import Path
from typing import Final

import grpc

DEVICE_PLUGINS: Final = Path("/var/lib/kubelet/device-plugins")
"""Where the kubelet looks for device plugins, whatever its root folder."""
KUBELET_SOCKET: Final = "kubelet.sock"

MAX_SOCKET_PATH_BYTES: Final = 107
"""The longest address that the kernel takes for a unix socket."""
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""The kubelet's gRPC client takes no larger message."""

OPTIONS: Final = (("grpc.enable_http_proxy", 0), ("grpc.so_reuseport", 0), ("grpc.use_local_subchannel_pool", 1))
"""No proxy, no shared port, and no channel that takes over the connection failures of another one."""

_PREFIX: Final = "gpu-agent-"
_READABLE: Final = 24


def endpoint_name(resource: str, token: str, number: int) -> str:
    """A file name that differs for each resource, agent and socket: the kubelet refuses a name that it still knows."""
    readable = re.sub(r"[^a-z0-9.]+", "-", resource.rpartition("/")[2].lower())[:_READABLE]
    digest = hashlib.sha256(resource.encode()).hexdigest()[:8]
    return f"{_PREFIX}{readable}-{digest}-{token}-{number}.sock"


def check_path_length(folder: Path, name: str) -> None:
    """Raise ValueError if a socket of this name cannot be made in this folder."""
    length = len(bytes(folder / name))
    if length > MAX_SOCKET_PATH_BYTES:
        raise ValueError(
            f"the socket {folder / name} would need a path of {length} bytes, but the kernel takes"
            f" {MAX_SOCKET_PATH_BYTES}; use a folder with a shorter path"
        )


def remove_stale_sockets(folder: Path) -> list[Path]:
    """Remove the sockets of agents that have ended. One that still answers belongs to an agent that is about to end."""
    stale = [path for path in sorted(folder.glob(f"{_PREFIX}*.sock")) if path.is_socket() and not _answers(path)]
    for path in stale:
        path.unlink(missing_ok=True)
    return stale


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a socket from a later one of the same name; None when there is none."""
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        if stat.S_ISSOCK(found.st_mode):
            return found.st_ino, found.st_ctime_ns
    return None


def open_channel(address: str, *, limit: int = MAX_MESSAGE_BYTES) -> grpc.aio.Channel:
    """A connection to `unix:///path` that takes messages up to `limit` bytes."""
    return grpc.aio.insecure_channel(address, (*OPTIONS, ("grpc.max_receive_message_length", limit)))


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True
