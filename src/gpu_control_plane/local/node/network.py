"""The addresses of real nodes, their pods and services: each cluster has a part of ranges reserved for them.

No packet with such an address leaves the host: while a cluster runs, all of them are routed to its `router`, which has
routes to its nodes and the host only. Clusters share no service address either, since the host, with the API servers of
all of them, has one route for each.
"""

import contextlib
import ipaddress
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpu_control_plane.local.errors import LocalError
from gpu_control_plane.local.locks import take

MOST_NODES = 4
_MOST_CLUSTERS = 64
# RFC 2544 reserves 198.18.0.0/15 for benchmarks between devices; it is not routed in the Internet.
_NODES = tuple(ipaddress.IPv4Network("198.18.0.0/16").subnets(new_prefix=24))
_PODS = tuple(ipaddress.IPv4Network("198.19.0.0/16").subnets(new_prefix=24))
_SERVICES = tuple(ipaddress.IPv4Network("10.96.0.0/12").subnets(new_prefix=18))
_LEASES = Path("/run/gpu-control-plane/networks")
_LAST = "network"


class AddressesTaken(LocalError):
    """Other clusters have the addresses that this one needs."""


class Ranges(msgspec.Struct, frozen=True, kw_only=True):
    """All addresses of one cluster."""

    nodes: str
    pods: str
    services: str

    @property
    def all(self) -> tuple[str, str, str]:
        return self.nodes, self.pods, self.services


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """How one node is connected to its cluster's router."""

    interface: str
    """The router's end of the veth pair; the node's is its `eth0`. No other node of this host has that name."""
    router: str
    """The next hop for everything but the node's own pods."""
    address: str
    pods: str
    """The node's part of the cluster's pod range."""
    ranges: Ranges
    metric: int
    """Of the route to the services: each node has one, the lowest metric is used, and with the last node it is gone."""


class Network(msgspec.Struct, frozen=True):
    """The part of the ranges that one cluster has while it runs."""

    number: int

    @property
    def gateway(self) -> str:
        """The address of the host, as nodes and pods see it."""
        return str(self._subnet[1])

    @property
    def router(self) -> str:
        """The address of the router."""
        return str(self._subnet[-2])

    @property
    def interface(self) -> str:
        """The host's end of the veth pair to the router."""
        return f"gpu{self.number}"

    @property
    def ranges(self) -> Ranges:
        pods = _PODS[self.number * MOST_NODES].supernet(new_prefix=24 - (MOST_NODES - 1).bit_length())
        return Ranges(nodes=str(self._subnet), pods=str(pods), services=str(_SERVICES[self.number]))

    def attachment(self, index: int) -> Attachment:
        """The connection of the cluster's n-th node."""
        return Attachment(
            interface=f"{self.interface}-{index}",
            router=self.router,
            address=str(self._subnet[2 + index]),
            pods=str(_PODS[self.number * MOST_NODES + index]),
            ranges=self.ranges,
            metric=1024 + index,
        )

    @property
    def _subnet(self) -> ipaddress.IPv4Network:
        return _NODES[self.number]


def last_network(folder: Path) -> Network | None:
    """The network that the cluster with this folder has, or had when it last ran."""
    try:
        return Network(int((folder / _LAST).read_text()) % _MOST_CLUSTERS)
    except (FileNotFoundError, ValueError):
        return None


@contextlib.contextmanager
def leased_network(folder: Path) -> Iterator[Network]:
    """Lease a network that no other cluster of this host has now.

    A folder gets the one it had, and no other: its Services keep their addresses as long as its data is kept.
    """
    _LEASES.mkdir(parents=True, exist_ok=True, mode=0o700)
    last = last_network(folder)
    for number in [last.number] if last else range(_MOST_CLUSTERS):
        path = _LEASES / str(number)
        if (lease := take(path)) is None:
            continue
        try:
            (folder / _LAST).write_text(str(number))
            yield Network(number)
        finally:
            path.unlink(missing_ok=True)
            os.close(lease)
        return
    if last:
        raise AddressesTaken(
            f"Another cluster, which runs now, has the addresses {', '.join(last.ranges.all)}, and the Services in"
            f" {folder.parent} have them, too. Stop the other one, or remove this one with `kubectl gpu down`."
        )
    raise AddressesTaken(
        f"{_MOST_CLUSTERS} clusters with real nodes run on this machine, and there are no more addresses. Stop some."
    )
