"""Where the cables of a cluster meet: this machine's and its nodes', in a network of their own.

Run as `python -m gpu_control_plane.local.node.hub CABLE`, it makes that network, leads every address of the cluster
there, and stays. This machine itself forwards nothing and has no other route to such an address, so none of them leaves
it, whatever becomes of the nodes. The cable and its routes vanish with this process, however it ends.
"""

import contextlib
import ipaddress
import os
import sys
from collections.abc import Iterator

import msgspec

from gpu_control_plane.local import processes
from gpu_control_plane.local.node.namespaces import (
    CABLE,
    LOOPBACK,
    add_pair,
    forward,
    own_mounts,
    own_proc,
    start_and_wait,
    stay,
)
from gpu_control_plane.local.node.netlink import Netlink
from gpu_control_plane.local.node.network import Network, Ranges


class Cable(msgspec.Struct, frozen=True, kw_only=True):
    """The connection between this machine and the hub."""

    interface: str
    gateway: str
    hub: str
    ranges: Ranges


@contextlib.contextmanager
def running_hub(network: Network) -> Iterator[int]:
    """A hub for the cluster with this network; its process."""
    cable = Cable(interface=network.interface, gateway=network.gateway, hub=network.hub, ranges=network.ranges)
    process = start_and_wait(__name__, cable, "The network of the real nodes")
    try:
        yield process.pid
    finally:
        # Leaving it to the kernel would do, but take a moment longer than the next cluster may want to wait.
        with contextlib.closing(Netlink()) as machine, contextlib.suppress(OSError):
            machine.remove(network.interface)
        processes.end(process)


def main(cable: Cable) -> None:
    machine = Netlink()
    os.unshare(os.CLONE_NEWNET | os.CLONE_NEWNS)
    own_mounts()
    own_proc()
    forward()
    ours = Netlink()
    gateway, hub = ipaddress.IPv4Address(cable.gateway), ipaddress.IPv4Address(cable.hub)
    add_pair(machine, cable.interface)
    ours.set_up(LOOPBACK)
    ours.add_address(LOOPBACK, ipaddress.IPv4Interface(hub))
    ours.set_up(CABLE)
    ours.add_route(ipaddress.IPv4Network(gateway), CABLE)
    machine.set_up(cable.interface)
    machine.add_address(cable.interface, ipaddress.IPv4Interface(gateway))
    machine.add_route(ipaddress.IPv4Network(hub), cable.interface)
    for addresses in cable.ranges.all:
        machine.add_route(ipaddress.IPv4Network(addresses), cable.interface, via=hub)
    stay()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Cable))
