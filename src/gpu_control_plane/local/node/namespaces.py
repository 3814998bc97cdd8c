"""What the hub and the machines have in common: a process with namespaces of its own that stays, and a cable out."""

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

LOOPBACK, CABLE = "lo", "eth0"
_READY = "ready"
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_PATIENCE = 10.0
_BIND, _RECURSIVE, _PRIVATE, _SHARED = 0x1000, 0x4000, 0x40000, 0x100000


def start_and_wait(module: str, order: msgspec.Struct, title: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a module that makes namespaces, and return when it says that they are ready."""
    command = [sys.executable, "-P", "-m", module, msgspec.json.encode(order).decode()]
    process = processes.spawn(command, output=subprocess.PIPE, cwd=cwd)
    said: list[str] = []
    with process.stdout or contextlib.nullcontext(()) as lines:
        for line in lines:
            said.append(line.decode(errors="replace").rstrip())
            if said[-1] == _READY:
                return process
    processes.end(process)
    raise ComponentFailed("\n  ".join((f"{title} could not be made:", *said)))


def stay() -> NoReturn:
    """Say that everything is ready, and do nothing for ever."""
    sys.stdout.write(f"{_READY}\n")
    sys.stdout.flush()
    while True:
        signal.pause()


def forward() -> None:
    """Pass on what is meant for others: a setting of this process' network alone, if `/proc` is its own, too."""
    _FORWARDING.write_text("1")


def own_mounts() -> None:
    """Let no mount or unmount of this process be seen outside. It is in a mount namespace of its own already."""
    _mount("none", "/", flags=_RECURSIVE | _PRIVATE)


def own_proc() -> None:
    """Have a `/proc` that shows this process' namespaces and can be written to, also where the machine's cannot."""
    _mount("proc", "/proc", kind="proc")


def share_mounts() -> None:
    """Let what is mounted from now on be seen in the mounts that programs here make of their own, as kubelets do."""
    _mount("none", "/", flags=_RECURSIVE | _SHARED)


def bind(source: str, target: str) -> None:
    """Let a path lead to another."""
    _mount(source, target, flags=_BIND)


def _mount(source: str, target: str, kind: str = "none", flags: int = 0) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def add_pair(outside: Netlink, name: str) -> None:
    """Lay a cable from there to here. The one of somebody who ended a moment ago may still lie there."""
    deadline = time.monotonic() + _PATIENCE
    with Path("/proc/self/ns/net").open("rb") as ours:
        while True:
            try:
                return outside.add_pair(name, CABLE, ours.fileno())
            except FileExistsError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)
