"""Ports on the loopback interface. A port that was asked for must be free; others are chosen by the kernel."""

import socket

from gpu_control_plane.local.errors import PortTaken

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A port that is free at this moment. Another process may take it before it is used: callers try again."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier run that are still closing do not keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def require_free(port: int, purpose: str) -> None:
    if not is_free(port):
        raise PortTaken(
            f"Port {port} on {LOOPBACK}, asked for as the address of the {purpose}, is in use or not allowed."
            f" Stop what listens there (`ss -ltnp 'sport = :{port}'` names it), or choose another port, or none to"
            " have a free one chosen."
        )
