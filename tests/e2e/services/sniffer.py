"""Sees every packet of this machine that is meant for a cluster, and by which interface it goes. Changes nothing."""

import collections
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Iterable, Iterator

_EVERY_PROTOCOL, _IPV4 = 0x0003, 0x0800
_DESTINATION = slice(16, 20)
_POLL = 0.1

type Seen = collections.Counter[str]
"""How many packets, by interface."""


@contextlib.contextmanager
def sniffing(ranges: Iterable[str]) -> Iterator[Seen]:
    """Count packets to these ranges from now on, until the context is left."""
    networks = [ipaddress.IPv4Network(each) for each in ranges]
    seen: Seen = collections.Counter()
    done = threading.Event()

    def listen(wire: socket.socket) -> None:
        while not done.is_set():
            with contextlib.suppress(TimeoutError):
                packet, (interface, protocol, *_rest) = wire.recvfrom(64)
                address = ipaddress.IPv4Address(packet[_DESTINATION]) if protocol == _IPV4 else None
                seen[interface] += any(address in network for network in networks if address)

    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_EVERY_PROTOCOL)) as wire:
        wire.settimeout(_POLL)
        listener = threading.Thread(target=listen, args=(wire,))
        listener.start()
        try:
            yield seen
        finally:
            done.set()
            listener.join()


def elsewhere(seen: Seen, interface: str) -> dict[str, int]:
    """What went another way than by this interface. What this machine tells itself goes nowhere."""
    return {name: count for name, count in seen.items() if count and name not in (interface, "lo")}
