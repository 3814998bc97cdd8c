"""The namespaces that a real node runs in: processes, mounts, network and host name of its own.

Run as `python -m gpu_control_plane.local.node.machine SPEC`, it makes these namespaces and stays. `nsenter` runs
programs in them. All of them end with this process, however it ends, and the kernel then removes the mounts, the
network and its routes: even a killed cluster process leaves nothing behind.
"""

import ipaddress
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from gpu_control_plane.local.die_with_parent import set_parent_death_signal
from gpu_control_plane.local.node.namespaces import (
    LOOPBACK,
    NODE_INTERFACE,
    add_pair,
    bind_mount,
    enable_forwarding,
    make_mounts_private,
    make_mounts_shared,
    mount_proc,
    stay,
)
from gpu_control_plane.local.node.netlink import Netlink
from gpu_control_plane.local.node.network import Attachment

_SYSCTL = Path("/proc/sys")
_NAMESPACES = os.CLONE_NEWNS | os.CLONE_NEWNET | os.CLONE_NEWPID | os.CLONE_NEWUTS if sys.platform == "linux" else 0


class MachineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the node sees instead of the host's."""

    name: str
    folders: dict[str, str]
    """Bind mounts: paths on the node, and what is mounted there. A path that the host lacks is created, and stays."""
    kernel: dict[str, str]
    """Files mounted over kernel settings, by the setting's path, so that the host's are neither seen nor changed."""
    attachment: Attachment
    router: int
    """The PID of the router at the other end of the veth pair."""


def main(spec: MachineSpec) -> int:
    with Path(f"/proc/{spec.router}/ns/net").open("rb") as network:
        os.setns(network.fileno(), os.CLONE_NEWNET)
    router_side = Netlink()
    os.unshare(_NAMESPACES)
    _connect(router_side, Netlink(), spec.attachment)
    socket.sethostname(spec.name)
    make_mounts_private()
    for path, source in spec.folders.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        bind_mount(source, path)
    first = os.fork()
    if first == 0:
        set_parent_death_signal()
        _run_init(spec.kernel)

    def end(_number: int, _frame: object) -> None:
        os.kill(first, signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    os.waitpid(first, 0)  # returns when the last process of the namespace is gone
    return 0


def _run_init(kernel: dict[str, str]) -> NoReturn:
    """Be PID 1, which adopts orphans. With SIGCHLD ignored, the kernel reaps them."""
    mount_proc()
    enable_forwarding()
    for setting, source in kernel.items():
        if (_SYSCTL / setting).exists():
            bind_mount(source, str(_SYSCTL / setting))
    make_mounts_shared()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    stay()


def _connect(router_side: Netlink, node: Netlink, attachment: Attachment) -> None:
    address, router = ipaddress.IPv4Address(attachment.address), ipaddress.IPv4Address(attachment.router)
    pods, services = ipaddress.IPv4Network(attachment.pods), ipaddress.IPv4Network(attachment.ranges.services)
    add_pair(router_side, attachment.interface)
    node.set_up(LOOPBACK)
    node.set_up(NODE_INTERFACE)
    node.add_address(NODE_INTERFACE, ipaddress.IPv4Interface(address))
    node.add_route(ipaddress.IPv4Network(router), NODE_INTERFACE)
    for others in (attachment.ranges.nodes, attachment.ranges.pods):
        node.add_route(ipaddress.IPv4Network(others), NODE_INTERFACE, via=router)
    node.refuse(pods)
    # Not refused: programs of the node need a route to a Service before kube-proxy rewrites it to one of a pod.
    node.add_route(services, LOOPBACK)
    router_side.set_up(attachment.interface)
    router_side.add_route(ipaddress.IPv4Network(address), attachment.interface)
    router_side.add_route(pods, attachment.interface, via=address)
    router_side.add_route(services, attachment.interface, via=address, metric=attachment.metric)


if __name__ == "__main__":
    sys.exit(main(msgspec.json.decode(sys.argv[1], type=MachineSpec)))
