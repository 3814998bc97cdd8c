"""What router and machines have in common: a process that makes namespaces and stays, and a veth pair out of them."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import msgspec

from gpu_control_plane.local import processes
from gpu_control_plane.local.errors import ComponentFailed
from gpu_control_plane.local.node.netlink import Netlink

LOOPBACK, NODE_INTERFACE = "lo", "eth0"
_READY = "ready"
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_TIMEOUT_SECONDS = 10.0
_BIND, _RECURSIVE, _PRIVATE, _SHARED = 0x1000, 0x4000, 0x40000, 0x100000


def start_and_wait(
    module: str, argument: msgspec.Struct, title: str, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a module that makes namespaces, and return when it prints that they are ready."""
    command = [sys.executable, "-P", "-m", module, msgspec.json.encode(argument).decode()]
    process = processes.spawn(command, output=subprocess.PIPE, cwd=cwd)
    output: list[str] = []
    with process.stdout or contextlib.nullcontext(()) as lines:
        for line in lines:
            output.append(line.decode(errors="replace").rstrip())
            if output[-1] == _READY:
                return process
    processes.end(process)
    raise ComponentFailed("\n  ".join((f"{title} could not be made:", *output)))


def stay() -> NoReturn:
    """Print that everything is ready, and sleep for ever."""
    sys.stdout.write(f"{_READY}\n")
    sys.stdout.flush()
    while True:
        signal.pause()


def enable_forwarding() -> None:
    """Enable IP forwarding in this network namespace; `/proc` must be of the namespace, too."""
    _FORWARDING.write_text("1")


def make_mounts_private() -> None:
    """Make mounts private, in a mount namespace of its own: none is propagated to the host."""
    _mount("none", "/", flags=_RECURSIVE | _PRIVATE)


def mount_proc() -> None:
    """Mount a `/proc` of these namespaces, writable also where the host's is not."""
    _mount("proc", "/proc", kind="proc")


def make_mounts_shared() -> None:
    """Make mounts shared: later ones are propagated to mount namespaces made here, as kubelets need."""
    _mount("none", "/", flags=_RECURSIVE | _SHARED)


def bind_mount(source: str, target: str) -> None:
    """Bind-mount `source` at `target`."""
    _mount(source, target, flags=_BIND)


def _mount(source: str, target: str, kind: str = "none", flags: int = 0) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def add_pair(outside: Netlink, name: str) -> None:
    """Make a veth pair between that namespace and this. One of a process that has just ended may still exist: wait."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    with Path("/proc/self/ns/net").open("rb") as ours:
        while True:
            try:
                return outside.add_pair(name, NODE_INTERFACE, ours.fileno())
            except FileExistsError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)
