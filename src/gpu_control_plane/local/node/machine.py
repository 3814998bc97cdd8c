"""The machine that a node believes to run on: its own processes, mounts, network and host name.

Run as `python -m gpu_control_plane.local.node.machine SHAPE`, it makes these namespaces and stays. Programs join them
with `inside`. All that ever ran there ends with this process, however it ends, and with the last of it go the mounts,
the network and its routes: the kernel tidies up, so that even a killed owner leaves nothing behind.
"""

import ipaddress
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from gpu_control_plane.local import tether
from gpu_control_plane.local.node.namespaces import (
    CABLE,
    LOOPBACK,
    add_pair,
    bind,
    forward,
    own_mounts,
    own_proc,
    share_mounts,
    stay,
)
from gpu_control_plane.local.node.netlink import Netlink
from gpu_control_plane.local.node.network import Attachment

_SYSCTL = Path("/proc/sys")
_NAMESPACES = os.CLONE_NEWNS | os.CLONE_NEWNET | os.CLONE_NEWPID | os.CLONE_NEWUTS if sys.platform == "linux" else 0


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What is different there."""

    name: str
    folders: dict[str, str]
    """Where paths lead to instead. A path that this machine does not have is made, and stays, empty."""
    kernel: dict[str, str]
    """Files that stand for kernel settings, by the setting's path. The kernel's own are neither seen nor changed."""
    attachment: Attachment
    hub: int
    """The process of the hub at the other end of the cable."""


def main(shape: Shape) -> int:
    with Path(f"/proc/{shape.hub}/ns/net").open("rb") as network:
        os.setns(network.fileno(), os.CLONE_NEWNET)
    outside = Netlink()
    os.unshare(_NAMESPACES)
    _connect(outside, Netlink(), shape.attachment)
    socket.sethostname(shape.name)
    own_mounts()
    for path, source in shape.folders.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        bind(source, path)
    first = os.fork()
    if first == 0:
        tether.die_with_parent()
        _live(shape.kernel)

    def end(_number: int, _frame: object) -> None:
        os.kill(first, signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    os.waitpid(first, 0)  # returns when the last process of the namespace is gone
    return 0


def _live(kernel: dict[str, str]) -> NoReturn:
    """Be the first process, which adopts orphans. The kernel buries them when nobody asks for their fate."""
    own_proc()
    forward()
    for setting, source in kernel.items():
        if (_SYSCTL / setting).exists():
            bind(source, str(_SYSCTL / setting))
    share_mounts()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    stay()


def _connect(outside: Netlink, node: Netlink, attachment: Attachment) -> None:
    address, beyond = ipaddress.IPv4Address(attachment.address), ipaddress.IPv4Address(attachment.hub)
    pods, services = ipaddress.IPv4Network(attachment.pods), ipaddress.IPv4Network(attachment.ranges.services)
    add_pair(outside, attachment.interface)
    node.set_up(LOOPBACK)
    node.set_up(CABLE)
    node.add_address(CABLE, ipaddress.IPv4Interface(address))
    node.add_route(ipaddress.IPv4Network(beyond), CABLE)
    for others in (attachment.ranges.nodes, attachment.ranges.pods):
        node.add_route(ipaddress.IPv4Network(others), CABLE, via=beyond)
    node.refuse(pods)
    # Not refused: the node's own programs need a way to a service before it can be turned into the way to a pod.
    node.add_route(services, LOOPBACK)
    outside.set_up(attachment.interface)
    outside.add_route(ipaddress.IPv4Network(address), attachment.interface)
    outside.add_route(pods, attachment.interface, via=address)
    outside.add_route(services, attachment.interface, via=address, metric=attachment.metric)


if __name__ == "__main__":
    sys.exit(main(msgspec.json.decode(sys.argv[1], type=Shape)))
