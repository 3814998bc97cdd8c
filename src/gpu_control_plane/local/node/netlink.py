"""The few requests to the kernel that connect a node: a pair of interfaces, their addresses, their routes.

Spoken directly, as not every machine with a GPU has the `ip` command. A connection belongs to the network namespace in
which it was opened, so a process that enters another namespace can still speak about the one it came from.
"""

import ipaddress
import os
import socket
import struct

_REQUEST, _ACK, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_NEW_LINK, _DELETE_LINK, _GET_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 17, 18, 20, 24
_ERROR = 2

_LINK_NAME, _LINK_INFO, _LINK_NAMESPACE = 3, 18, 28
_INFO_KIND, _INFO_DATA = 1, 2
_VETH_PEER = 1
_ADDRESS, _LOCAL_ADDRESS = 1, 2
_ROUTE_TO, _ROUTE_INTERFACE, _ROUTE_VIA, _ROUTE_METRIC = 1, 4, 5, 6

_NESTED = 0x8000
_UP = 0x1
_MAIN_TABLE, _BY_ADMINISTRATOR, _UNICAST, _UNREACHABLE = 254, 4, 1, 7
_SCOPE_EVERYWHERE, _SCOPE_LINK = 0, 253
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_LARGEST_ANSWER = 65536


class Netlink:
    """A connection to the kernel about the interfaces of one network namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)

    def close(self) -> None:
        self._socket.close()

    def add_pair(self, name: str, peer: str, namespace: int) -> None:
        """Make a veth pair: one interface here, its peer in the network namespace of this descriptor."""
        other_end = _link() + _text(_LINK_NAME, peer) + _number(_LINK_NAMESPACE, namespace)
        kind = _text(_INFO_KIND, "veth") + _nest(_INFO_DATA, _attribute(_VETH_PEER, other_end))
        self._change(_NEW_LINK, _link() + _text(_LINK_NAME, name) + _nest(_LINK_INFO, kind), create=True)

    def set_up(self, name: str) -> None:
        self._change(_NEW_LINK, _link(self._index(name), up=True))

    def remove(self, name: str) -> None:
        """Remove an interface, and with it its peer and their routes."""
        self._change(_DELETE_LINK, _link(self._index(name)))

    def add_address(self, name: str, address: ipaddress.IPv4Interface) -> None:
        head = struct.pack("=BBBBI", socket.AF_INET, address.network.prefixlen, 0, 0, self._index(name))
        packed = address.ip.packed
        self._change(
            _NEW_ADDRESS, head + _attribute(_LOCAL_ADDRESS, packed) + _attribute(_ADDRESS, packed), create=True
        )

    def add_route(
        self,
        to: ipaddress.IPv4Network,
        name: str,
        *,
        via: ipaddress.IPv4Address | None = None,
        metric: int = 0,
    ) -> None:
        body = _number(_ROUTE_INTERFACE, self._index(name))
        if via:
            body += _attribute(_ROUTE_VIA, via.packed)
        if metric:
            body += _number(_ROUTE_METRIC, metric)
        self._add_route(to, _UNICAST, _SCOPE_EVERYWHERE if via else _SCOPE_LINK, body)

    def refuse(self, to: ipaddress.IPv4Network) -> None:
        """Answer with «unreachable» what no narrower route matches."""
        self._add_route(to, _UNREACHABLE, _SCOPE_EVERYWHERE, b"")

    def _add_route(self, to: ipaddress.IPv4Network, kind: int, scope: int, body: bytes) -> None:
        head = struct.pack(
            "=BBBBBBBBI", socket.AF_INET, to.prefixlen, 0, 0, _MAIN_TABLE, _BY_ADMINISTRATOR, scope, kind, 0
        )
        self._change(_NEW_ROUTE, head + _attribute(_ROUTE_TO, to.network_address.packed) + body, create=True)

    def _index(self, name: str) -> int:
        answer = self._ask(_GET_LINK, _REQUEST, _link() + _text(_LINK_NAME, name))
        index: int = _LINK.unpack_from(answer)[2]
        return index

    def _change(self, kind: int, body: bytes, *, create: bool = False) -> None:
        self._ask(kind, _REQUEST | _ACK | (_CREATE | _EXCLUSIVE if create else 0), body)

    def _ask(self, kind: int, flags: int, body: bytes) -> bytes:
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, 0, 0) + body)
        answer = self._socket.recv(_LARGEST_ANSWER)
        _length, kind, *_rest = _HEADER.unpack_from(answer)
        content = answer[_HEADER.size :]
        if kind == _ERROR and (code := -struct.unpack_from("=i", content)[0]):
            raise OSError(code, os.strerror(code))
        return content


def _link(index: int = 0, *, up: bool = False) -> bytes:
    return _LINK.pack(socket.AF_UNSPEC, 0, index, _UP if up else 0, _UP if up else 0)


def _attribute(kind: int, content: bytes) -> bytes:
    padding = b"\0" * (-len(content) % 4)
    return struct.pack("=HH", len(content) + 4, kind) + content + padding


def _nest(kind: int, content: bytes) -> bytes:
    return _attribute(kind | _NESTED, content)


def _text(kind: int, text: str) -> bytes:
    return _attribute(kind, text.encode() + b"\0")


def _number(kind: int, number: int) -> bytes:
    return _attribute(kind, struct.pack("=I", number))
