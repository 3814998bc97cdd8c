"""The connections of a webhook server: so many at a time and no more, and callers who have sent a review come first.

Every pod of a cluster may reach a webhook unless the network forbids it. A connection takes memory before anybody knows
who is at its other end, so their number is bounded. When all places are taken, a newcomer takes that of another that
has not sent a review yet, the one that has had the most time for it; so hostile connections displace each other, and
not the API server's, which are kept open from review to review.
"""

import asyncio
import socket
import ssl
import traceback
from asyncio import sslproto
from collections.abc import Callable
from typing import Final

import structlog
from aiohttp.web_protocol import RequestHandler
from prometheus_client import Counter

MOST_CONNECTIONS: Final = 64
"""Each takes up to 350 KiB: asyncio's buffer for TLS, and what was sent and not asked for."""
HANDSHAKE_SECONDS: Final = 5.0
FIRST_REVIEW_SECONDS: Final = 120.0
"""The API server may connect for a review that another connection then takes, and keep the new one for the next, for
90 s at most. If we closed it before, that could be in the moment in which a review is sent on it, which then fails."""
_TLS_BUFFER_BYTES: Final = 32 * 1024
"""asyncio would take 256 KiB for each connection, and keep them for a while after its end. It is the same for all
connections of a process."""
_PAUSE_SECONDS: Final = 0.1
_BACKLOG: Final = 1024
"""As many may wait in the kernel: one who is turned away there tries again only after a second."""

_log = structlog.get_logger(component="kube.webhooks")


class WebhookConnections:
    """Listens, and serves every connection with a protocol of `factory`."""

    def __init__(
        self,
        tls: ssl.SSLContext,
        closed: Counter,
        *,
        most: int = MOST_CONNECTIONS,
        handshake_within: float = HANDSHAKE_SECONDS,
        first_review_within: float = FIRST_REVIEW_SECONDS,
    ) -> None:
        self._tls = tls
        self._closed = closed
        self._most = most
        self._handshake_within = handshake_within
        self._first_review_within = first_review_within
        self._listening: socket.socket | None = None
        self._paused: asyncio.TimerHandle | None = None
        self._newcomers: dict[_Connection, None] = {}
        """In the order in which they came."""
        self._callers: dict[_Connection, None] = {}
        """Those who have sent a review, the latest last."""

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._listening.getsockname()[1]) if self._listening is not None else 0

    def listen(self, host: str | None, port: int, factory: Callable[[], RequestHandler]) -> None:
        """Begin. Without a host on all addresses of the machine."""
        sslproto.SSLProtocol.max_size = min(sslproto.SSLProtocol.max_size, _TLS_BUFFER_BYTES)
        self._listening = _listening_socket(host, port)
        asyncio.get_running_loop().add_reader(self._listening, self._accept, self._listening, factory)

    def stop_listening(self) -> None:
        """Accept no more; what is open stays open."""
        if self._paused is not None:
            self._paused.cancel()
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
        for connection in tuple(self._newcomers):
            connection.handshake.cancel()

    def reviewed(self, protocol: RequestHandler) -> None:
        """A review has come on this connection."""
        for group in (self._newcomers, self._callers):
            for connection in group:
                if connection.protocol is protocol:
                    connection.stop_expecting()
                    del group[connection]
                    self._callers[connection] = None
                    return

    def _accept(self, listening: socket.socket, factory: Callable[[], RequestHandler]) -> None:
        """The kernel has a connection for us. It calls again for the next one."""
        loop = asyncio.get_running_loop()
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # out of file descriptors, as anybody may cause it
            _log.warning("connection not accepted", why=str(error))
            loop.remove_reader(listening)
            self._paused = loop.call_later(_PAUSE_SECONDS, loop.add_reader, listening, self._accept, listening, factory)
            return
        accepted.setblocking(False)
        self._make_room()
        connection = _Connection(accepted)
        connection.handshake = loop.create_task(self._shake_hands(connection, factory))
        self._newcomers[connection] = None
        self._expect_more(connection, self._handshake_within)

    async def _shake_hands(self, connection: "_Connection", factory: Callable[[], RequestHandler]) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection.protocol = await loop.connect_accepted_socket(
                factory, connection.accepted, ssl=self._tls, ssl_handshake_timeout=self._handshake_within
            )
            if connection in self._newcomers:
                self._expect_more(connection, self._first_review_within)
        except (OSError, ssl.SSLError, TimeoutError, asyncio.CancelledError) as error:
            # A port scan, a caller whom we do not trust, or one whose place was taken.
            self._forget(connection)
            # The frames hold the connection's buffers, and the error, in a circle: under an attack more of them would
            # be made than the collector gets round to.
            traceback.clear_frames(error.__traceback__)
        finally:
            if connection.protocol is None:
                connection.accepted.close()

    def _make_room(self) -> None:
        """Let go of what is closed and, where that is not enough, of the one that is least likely to be missed."""
        if len(self._newcomers) + len(self._callers) < self._most:
            return
        for group in (self._newcomers, self._callers):
            for connection in [each for each in group if each.closed]:
                self._forget(connection)
        if len(self._newcomers) + len(self._callers) >= self._most:
            self._close(next(iter(self._newcomers or self._callers)), "limit")

    def _expect_more(self, connection: "_Connection", within: float) -> None:
        connection.stop_expecting()
        connection.expiry = asyncio.get_running_loop().call_later(within, self._expire, connection)

    def _expire(self, connection: "_Connection") -> None:
        if connection in self._newcomers:
            self._close(connection, "slow" if not connection.closed else None)

    def _close(self, connection: "_Connection", reason: str | None) -> None:
        self._forget(connection)
        connection.close()
        if reason is not None:
            self._closed.labels(reason).inc()

    def _forget(self, connection: "_Connection") -> None:
        connection.stop_expecting()
        self._newcomers.pop(connection, None)
        self._callers.pop(connection, None)


class _Connection:
    """One accepted connection, from before its TLS handshake to its end."""

    handshake: "asyncio.Task[None]"

    def __init__(self, accepted: socket.socket) -> None:
        self.accepted = accepted
        self.protocol: RequestHandler | None = None
        self.expiry: asyncio.TimerHandle | None = None

    @property
    def closed(self) -> bool:
        if self.protocol is None:
            return self.handshake.done()
        return self.protocol.transport is None or self.protocol.transport.is_closing()

    def stop_expecting(self) -> None:
        """The timer would hold the connection, and what it has read, long after its end."""
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None

    def close(self) -> None:
        self.handshake.cancel()
        if self.protocol is not None and self.protocol.transport is not None:
            self.protocol.transport.abort()


def _listening_socket(host: str | None, port: int) -> socket.socket:
    if host is None and socket.has_dualstack_ipv6():
        listening = socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
    else:
        listening = socket.create_server((host or "", port), backlog=_BACKLOG)
    listening.setblocking(False)
    return listening
