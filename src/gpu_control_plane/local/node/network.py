"""The addresses of real nodes, their pods and services: from ranges of their own, and a part of each per cluster.

Nothing with such an address leaves the machine: for as long as a cluster runs, all of them lead to its `hub`, which
knows its nodes and this machine, and nobody else. No two clusters share a service address either, as this machine, with
all the API servers on it, knows only one way to each.
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
# RFC 2544 sets 198.18.0.0/15 aside for tests between devices; nobody routes it.
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
    """How one node is connected to its cluster's hub."""

    interface: str
    """The hub's end of the cable; the node's is its `eth0`. No other node of this machine has that name."""
    hub: str
    """The address that everything but the node's own pods is behind."""
    address: str
    pods: str
    """The node's own part of the cluster's."""
    ranges: Ranges
    metric: int
    """Every node offers a way to the services; one of them is taken, and with the last node the way is gone."""


class Network(msgspec.Struct, frozen=True):
    """The part of the range that belongs to one cluster while it runs."""

    number: int

    @property
    def gateway(self) -> str:
        """This machine, as its nodes and their pods see it."""
        return str(self._subnet[1])

    @property
    def hub(self) -> str:
        """The way from this machine to the nodes, and from one to another."""
        return str(self._subnet[-2])

    @property
    def interface(self) -> str:
        """This machine's end of the cable to the hub."""
        return f"gpu{self.number}"

    @property
    def ranges(self) -> Ranges:
        pods = _PODS[self.number * MOST_NODES].supernet(new_prefix=24 - (MOST_NODES - 1).bit_length())
        return Ranges(nodes=str(self._subnet), pods=str(pods), services=str(_SERVICES[self.number]))

    def attachment(self, index: int) -> Attachment:
        """The connection of the cluster's n-th node."""
        return Attachment(
            interface=f"{self.interface}-{index}",
            hub=self.hub,
            address=str(self._subnet[2 + index]),
            pods=str(_PODS[self.number * MOST_NODES + index]),
            ranges=self.ranges,
            metric=1024 + index,
        )

    @property
    def _subnet(self) -> ipaddress.IPv4Network:
        return _NODES[self.number]


def last_network(folder: Path) -> Network | None:
    """The network that the cluster with this folder has now, or had when it ran."""
    try:
        return Network(int((folder / _LAST).read_text()) % _MOST_CLUSTERS)
    except (FileNotFoundError, ValueError):
        return None


@contextlib.contextmanager
def leased_network(folder: Path) -> Iterator[Network]:
    """A network that no other cluster of this machine has now.

    A folder gets the one it had, and no other: its Services keep their addresses for as long as its data is kept.
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
