"""The addresses of real nodes and their pods: from a range that no real network uses, and a part of it per cluster.

Nothing with such an address leaves the machine: a node knows the way to its own pods and to this machine, and no other.
"""

import contextlib
import ipaddress
import itertools
import os
import zlib
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
_LEASES = Path("/run/gpu-control-plane/networks")
_LAST = "network"


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """How one node is connected to this machine."""

    interface: str
    """This machine's end of the cable; the node's is its `eth0`. No other node of this machine has that name."""
    gateway: str
    """This machine, as its nodes see it."""
    address: str
    subnet: str
    pods: str
    services: str
    metric: int
    """Every node offers a way to the services; one of them is taken, and with the last node the way is gone."""


class Network(msgspec.Struct, frozen=True):
    """The part of the range that belongs to one cluster while it runs."""

    number: int

    @property
    def gateway(self) -> str:
        return str(self._subnet[1])

    def interface(self, index: int) -> str:
        return f"gpu{self.number}-{index}"

    def attachment(self, index: int, services: str) -> Attachment:
        """The connection of the cluster's n-th node."""
        return Attachment(
            interface=self.interface(index),
            gateway=self.gateway,
            address=str(self._subnet[2 + index]),
            subnet=str(self._subnet),
            pods=str(_PODS[self.number * MOST_NODES + index]),
            services=services,
            metric=1024 + self.number * MOST_NODES + index,
        )

    @property
    def _subnet(self) -> ipaddress.IPv4Network:
        return _NODES[self.number]


@contextlib.contextmanager
def leased_network(folder: Path) -> Iterator[Network]:
    """A network that no other cluster of this machine has now; a folder gets the one it had, if that is free."""
    _LEASES.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number in _candidates(folder / _LAST):
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
    raise LocalError(
        f"{_MOST_CLUSTERS} clusters with real nodes run on this machine, and there are no more addresses. Stop some."
    )


def _candidates(last: Path) -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError, ValueError):
        yield int(last.read_text()) % _MOST_CLUSTERS
    somewhere = zlib.crc32(str(last).encode())
    yield from itertools.islice((number % _MOST_CLUSTERS for number in itertools.count(somewhere)), _MOST_CLUSTERS)
