"""Restarting a runtime, by whatever keeps it running on this node. Containers outlive that."""

import os
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpu_control_plane.agent.runtimes.interface import Run, RuntimeConfigError

_SYSTEMD: Final = Path("/run/systemd/system")
"""Exists where systemd is in charge; the documented way to ask."""
_CREDENTIALS: Final = struct.Struct("3i")
_PATIENCE: Final = 5.0


def restarter(unit: str, socket_path: Path, run: Run, systemd: Path = _SYSTEMD) -> Callable[[], None]:
    """The way to restart a runtime here: its systemd unit, or else a signal to whoever serves its socket."""
    if systemd.exists():
        return lambda: restart_unit(unit, run)
    return lambda: signal_owner(socket_path)


def restart_unit(unit: str, run: Run) -> None:
    run(("systemctl", "restart", unit))


def signal_owner(socket_path: Path) -> None:
    """Send SIGHUP to the process behind a socket. containerd ends on it, and whoever watches it starts it again."""
    os.kill(socket_owner(socket_path), signal.SIGHUP)


def socket_owner(socket_path: Path) -> int:
    """The process that listens on a socket, as the kernel tells."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PATIENCE)
        try:
            connection.connect(str(socket_path))
        except OSError as error:
            raise RuntimeConfigError(f"Nobody answers on {socket_path}: {error}") from error
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    owner: int = _CREDENTIALS.unpack(credentials)[0]
    if owner <= 0:
        raise RuntimeConfigError(f"The process behind {socket_path} cannot be seen: the agent needs the host's PIDs.")
    return owner
