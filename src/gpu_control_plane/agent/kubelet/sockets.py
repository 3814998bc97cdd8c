"""The unix sockets between agent and kubelet: their names, and what a dead agent left behind."""

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

LONGEST_PATH: Final = 107
"""Bytes; what the kernel takes for the address of a unix socket."""
MESSAGE_LIMIT: Final = 4 * 1024 * 1024
"""Bytes; the kubelet's gRPC client takes no larger message."""

OPTIONS: Final = (("grpc.enable_http_proxy", 0), ("grpc.so_reuseport", 0), ("grpc.use_local_subchannel_pool", 1))
"""Talk to the socket itself, share it with nobody, and let no channel inherit another one's failures."""

_PREFIX: Final = "gpu-agent-"
_READABLE: Final = 24


def endpoint_name(resource: str, token: str, number: int) -> str:
    """A file name that no other resource, start or serving shares: the kubelet refuses a socket it still knows."""
    readable = re.sub(r"[^a-z0-9.]+", "-", resource.rpartition("/")[2].lower())[:_READABLE]
    digest = hashlib.sha256(resource.encode()).hexdigest()[:8]
    return f"{_PREFIX}{readable}-{digest}-{token}-{number}.sock"


def check_room(folder: Path, name: str) -> None:
    """Say early, and in words, that a socket cannot be made here."""
    length = len(bytes(folder / name))
    if length > LONGEST_PATH:
        raise ValueError(
            f"the socket {folder / name} would need a path of {length} bytes, but the kernel takes {LONGEST_PATH};"
            " use a folder with a shorter path"
        )


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove the sockets of agents that are no more; one that still answers belongs to a predecessor about to leave."""
    leftovers = [path for path in sorted(folder.glob(f"{_PREFIX}*.sock")) if path.is_socket() and not _answers(path)]
    for path in leftovers:
        path.unlink(missing_ok=True)
    return leftovers


def identity(path: Path) -> tuple[int, int] | None:
    """Tells a socket from its successor under the same name; None when there is none."""
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        if stat.S_ISSOCK(found.st_mode):
            return found.st_ino, found.st_ctime_ns
    return None


def open_channel(address: str, *, limit: int = MESSAGE_LIMIT) -> grpc.aio.Channel:
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
