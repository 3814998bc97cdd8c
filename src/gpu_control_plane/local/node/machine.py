"""The machine that a node believes to run on: its own processes, mounts, network and host name.

Run as `python -m gpu_control_plane.local.node.machine SHAPE`, it makes these namespaces and stays. Programs join them
with `inside`. All that ever ran there ends with this process, however it ends, and with the last of it go the mounts,
the network and its routes: the kernel tidies up, so that even a killed owner leaves nothing behind.
"""

import ctypes
import ipaddress
import os
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from gpu_control_plane.local import tether
from gpu_control_plane.local.node.netlink import Netlink
from gpu_control_plane.local.node.network import Attachment

READY = "ready"
_SYSCTL = Path("/proc/sys")
_BIND, _RECURSIVE, _PRIVATE, _SHARED = 0x1000, 0x4000, 0x40000, 0x100000
_NAMESPACES = os.CLONE_NEWNS | os.CLONE_NEWNET | os.CLONE_NEWPID | os.CLONE_NEWUTS if sys.platform == "linux" else 0
_LOOPBACK, _CABLE = "lo", "eth0"
_PATIENCE = 10.0


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What is different there."""

    name: str
    folders: dict[str, str]
    """Where paths lead to instead. A path that this machine does not have is made, and stays, empty."""
    kernel: dict[str, str]
    """Files that stand for kernel settings, by the setting's path. The kernel's own are neither seen nor changed."""
    attachment: Attachment


def main(shape: Shape) -> int:
    host = Netlink()
    os.unshare(_NAMESPACES)
    _connect(host, Netlink(), shape.attachment)
    socket.sethostname(shape.name)
    _mount("none", "/", flags=_RECURSIVE | _PRIVATE)
    for path, source in shape.folders.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        _mount(source, path, flags=_BIND)
    first = os.fork()
    if first == 0:
        tether.die_with_parent()
        return _live(shape.kernel)

    def end(_number: int, _frame: object) -> None:
        os.kill(first, signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    os.waitpid(first, 0)  # returns when the last process of the namespace is gone
    return 0


def _live(kernel: dict[str, str]) -> int:
    """Be the first process, which adopts orphans. The kernel buries them when nobody asks for their fate."""
    _mount("proc", "/proc", kind="proc")
    for setting, source in kernel.items():
        if (_SYSCTL / setting).exists():
            _mount(source, str(_SYSCTL / setting), flags=_BIND)
    _mount("none", "/", flags=_RECURSIVE | _SHARED)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    while True:
        signal.pause()


def _connect(host: Netlink, node: Netlink, attachment: Attachment) -> None:
    here, services = attachment.interface, ipaddress.IPv4Network(attachment.services)
    address, subnet = ipaddress.IPv4Address(attachment.address), ipaddress.IPv4Network(attachment.subnet)
    _add_pair(host, here)
    node.set_up(_LOOPBACK)
    node.set_up(_CABLE)
    node.add_address(_CABLE, ipaddress.IPv4Interface((address, subnet.prefixlen)))
    node.add_route(services, _LOOPBACK)
    host.set_up(here)
    host.add_address(here, ipaddress.IPv4Interface(attachment.gateway))
    host.add_route(ipaddress.IPv4Network(address), here)
    host.add_route(ipaddress.IPv4Network(attachment.pods), here, via=address)
    host.add_route(services, here, via=address, metric=attachment.metric)


def _add_pair(host: Netlink, name: str) -> None:
    """The cable of a machine that ended a moment ago may still lie there."""
    deadline = time.monotonic() + _PATIENCE
    with Path("/proc/self/ns/net").open("rb") as ours:
        while True:
            try:
                return host.add_pair(name, _CABLE, ours.fileno())
            except FileExistsError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)


def _mount(source: str, target: str, kind: str = "none", flags: int = 0) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


if __name__ == "__main__":
    sys.exit(main(msgspec.json.decode(sys.argv[1], type=Shape)))
