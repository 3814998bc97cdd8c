"""Restarts a container runtime, by systemd or by a signal. Containers keep running."""

import os
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpu_control_plane.agent.runtimes.interface import RunCommand, RuntimeConfigError

_SYSTEMD: Final = Path("/run/systemd/system")
"""Exists if systemd runs (sd_booted)."""
_CREDENTIALS: Final = struct.Struct("3i")
_TIMEOUT_SECONDS: Final = 5.0


def restarter(
    unit: str, socket_path: Path, run: RunCommand, systemd: Path = _SYSTEMD, *, reload: bool = False
) -> Callable[[], None]:
    """How the runtime is restarted: its systemd unit, or else a signal to the process that serves its socket.

    With `reload` the unit is only told to read its files again.
    """
    if systemd.exists():
        return lambda: _tell_systemd("reload" if reload else "restart", unit, run)
    return lambda: signal_owner(socket_path)


def _tell_systemd(verb: str, unit: str, run: RunCommand) -> None:
    run(("systemctl", verb, unit))


def signal_owner(socket_path: Path) -> None:
    """Send SIGHUP to the process that serves a socket. containerd exits on it, and its supervisor starts it again."""
    os.kill(socket_owner(socket_path), signal.SIGHUP)


def socket_owner(socket_path: Path) -> int:
    """The PID of the process that listens on a socket, from the kernel."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_SECONDS)
        try:
            connection.connect(str(socket_path))
        except OSError as error:
            raise RuntimeConfigError(f"No process answers on {socket_path}: {error}") from error
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    owner: int = _CREDENTIALS.unpack(credentials)[0]
    if owner <= 0:
        raise RuntimeConfigError(
            f"The process behind {socket_path} cannot be seen: the agent needs the host's PIDs (agent.hostPID)."
        )
    return owner
