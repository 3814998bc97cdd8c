"""The router of a cluster with real nodes: a network namespace that connects the host and the nodes.

Run as `python -m gpu_control_plane.local.node.router UPLINK`, it makes that namespace, routes every address of the
cluster there, and stays. The host itself forwards nothing and has no other route to such an address, so no packet
leaves it, whatever becomes of the nodes. The uplink and its routes vanish with this process, however it ends.
"""

import contextlib
import ipaddress
import os
import sys
from collections.abc import Iterator

import msgspec

from gpu_control_plane.local import processes
from gpu_control_plane.local.node.namespaces import (
    LOOPBACK,
    NODE_INTERFACE,
    add_pair,
    enable_forwarding,
    make_mounts_private,
    mount_proc,
    start_and_wait,
    stay,
)
from gpu_control_plane.local.node.netlink import Netlink
from gpu_control_plane.local.node.network import Network, Ranges


class Uplink(msgspec.Struct, frozen=True, kw_only=True):
    """The veth pair between the host and the router."""

    interface: str
    gateway: str
    router: str
    ranges: Ranges


@contextlib.contextmanager
def running_router(network: Network) -> Iterator[int]:
    """A router for the cluster with this network; yields its PID."""
    uplink = Uplink(interface=network.interface, gateway=network.gateway, router=network.router, ranges=network.ranges)
    process = start_and_wait(__name__, uplink, "The network of the real nodes")
    try:
        yield process.pid
    finally:
        # The kernel would remove it, too, but later than the next cluster may need the name.
        with contextlib.closing(Netlink()) as host, contextlib.suppress(OSError):
            host.remove(network.interface)
        processes.end(process)


def main(uplink: Uplink) -> None:
    host = Netlink()
    os.unshare(os.CLONE_NEWNET | os.CLONE_NEWNS)
    make_mounts_private()
    mount_proc()
    enable_forwarding()
    ours = Netlink()
    gateway, router = ipaddress.IPv4Address(uplink.gateway), ipaddress.IPv4Address(uplink.router)
    add_pair(host, uplink.interface)
    ours.set_up(LOOPBACK)
    ours.add_address(LOOPBACK, ipaddress.IPv4Interface(router))
    ours.set_up(NODE_INTERFACE)
    ours.add_route(ipaddress.IPv4Network(gateway), NODE_INTERFACE)
    host.set_up(uplink.interface)
    host.add_address(uplink.interface, ipaddress.IPv4Interface(gateway))
    host.add_route(ipaddress.IPv4Network(router), uplink.interface)
    for addresses in uplink.ranges.all:
        host.add_route(ipaddress.IPv4Network(addresses), uplink.interface, via=router)
    stay()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Uplink))
