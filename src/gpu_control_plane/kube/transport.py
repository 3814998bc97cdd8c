"""One HTTP exchange with the API server: credentials, limits, Retry-After, and errors of this package.

HTTP/1.1 on aiohttp, since it costs a third of the CPU of the alternatives per watch event. Nothing here knows
about objects: paths and bytes in, bytes out.
"""

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from http import HTTPStatus
from types import TracebackType
from typing import Self

import aiohttp
import msgspec
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from multidict import CIMultiDict

from gpu_control_plane.kube.backoff import Backoff
from gpu_control_plane.kube.config import Access, Config
from gpu_control_plane.kube.errors import (
    ApiError,
    KubeError,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_status,
)
from gpu_control_plane.kube.metrics import Metrics

_USER_AGENT = "gpu-control-plane"
_RETRY_LIMIT = 6
_RETRY_PAUSE = Backoff(first=0.1, most=10.0, jitter=1.0)

Fence = Callable[[], None]
"""Raises when writing is no longer allowed."""

_fence: ContextVar[Fence | None] = ContextVar("fence", default=None)
"""The fence of the request that this task sends."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request, with the labels under which it is counted."""

    method: str
    path: str
    verb: str
    resource: str
    params: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str | None = None
    """The form of the answer, where it is not the whole object."""
    compressed: bool = False


class _Status(msgspec.Struct, rename="camel"):
    message: str = ""
    reason: str = ""
    code: int = 0


class Transport:
    """A pool of connections to one API server, shared by everything in a process."""

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        *,
        timeout: float = 30.0,
        in_flight: int = 64,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._timeout = timeout
        self._slots = asyncio.Semaphore(in_flight)
        self._rng = rng or random.Random()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # Watches hold a connection each, so the pool has no limit; `in_flight` bounds the rest.
        connector = _FencedConnector(limit=0, ttl_dns_cache=30, socket_factory=_keepalive_socket)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": _USER_AGENT, "Accept": "application/json"},
            auto_decompress=True,
            skip_auto_headers=("Accept-Encoding",),
        )
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def for_config(self, config: Config) -> "Transport":
        """The same connections, limits and numbers for another identity at the same server. Whose certificate is
        another has other connections: the pool keeps them apart by their TLS context."""
        copy = object.__new__(Transport)
        copy.__dict__.update(self.__dict__)
        copy._config = config
        return copy

    async def send(self, call: Call, fence: Fence | None = None) -> bytes:
        """Carry out a call. Waits and sends again where the server says that it did not act on the request.

        `fence` is asked before every attempt, when there is a connection to send it on: what was waited for (a free
        slot, credentials, the network, Retry-After) may have taken longer than the right to write lasted.
        """
        attempt = 0
        renewed = False
        while True:
            try:
                return await self._exchange(call, fence)
            except Unauthorized:
                if renewed:
                    raise
                renewed = True
                self._metrics.api_retries.labels("credentials").inc()
            except (TooManyRequests, ServerError) as error:
                attempt += 1
                if error.retry_after is None or attempt >= _RETRY_LIMIT:
                    raise
                self._metrics.api_retries.labels("throttled").inc()
                # On top of what was asked for: all who were refused in the same moment were told the same.
                await asyncio.sleep(error.retry_after + _RETRY_PAUSE.delay(attempt, self._rng))

    @asynccontextmanager
    async def stream(self, call: Call, *, silence: float) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a watch; it fails as `Unreachable` when nothing at all arrives for `silence` seconds."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=silence)
        try:
            async with self._open(call, timeout) as response:
                yield response.content
        except Unauthorized:
            self._metrics.api_retries.labels("credentials").inc()
            raise

    async def _exchange(self, call: Call, fence: Fence | None) -> bytes:
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        async with self._slots:
            start = time.perf_counter()
            if fence is not None:
                fence()
            token = _fence.set(fence)
            try:
                async with self._open(call, timeout) as response:
                    body = await response.read()
            finally:
                _fence.reset(token)
            self._metrics.api_seconds.labels(call.verb, call.resource).observe(time.perf_counter() - start)
            return body

    @asynccontextmanager
    async def _open(self, call: Call, timeout: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise KubeError("the client is closed: use it inside `async with`")
        access = await self._config.access()
        counted = False
        try:
            async with self._session.request(
                call.method,
                self._config.server + call.path,
                params=call.params,
                data=call.body,
                headers=_headers(call, access),
                ssl=access.ssl,
                proxy=self._config.proxy,
                timeout=timeout,
            ) as response:
                self._count(call, response.status)
                counted = True
                if response.status >= HTTPStatus.BAD_REQUEST:
                    await self._fail(response, access)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if not counted:
                self._count(call, 0)
            raise Unreachable(self._explain(error)) from error

    async def _fail(self, response: aiohttp.ClientResponse, access: Access) -> None:
        # Read to the end, so that the connection can serve the next request.
        error = _api_error(response, await response.read())
        if isinstance(error, Unauthorized):
            self._config.rejected(access)
        raise error

    def _count(self, call: Call, code: int) -> None:
        self._metrics.api_requests.labels(call.verb, call.resource, str(code)).inc()

    def _explain(self, error: Exception) -> str:
        server = self._config.server
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return (
                f"the API server at {server} shows a certificate this kubeconfig does not trust "
                f"({error.certificate_error}); check certificate-authority-data"
            )
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return f"the proxy {self._config.proxy} does not answer; check proxy-url and HTTPS_PROXY"
        if isinstance(error, TimeoutError):
            return f"the API server at {server} did not answer in time; check that it is healthy and reachable"
        if isinstance(error, aiohttp.ClientConnectorError):
            return (
                f"cannot connect to the API server at {server} ({error.os_error.strerror or error}); "
                "check that it is running and that the kubeconfig names the right address"
            )
        return f"the connection to the API server at {server} broke ({str(error) or type(error).__name__})"


class _FencedConnector(aiohttp.TCPConnector):
    """Asks the fence when a request has its connection: to dial may take as long as a whole lease."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        fence = _fence.get()
        if fence is not None:
            try:
                fence()
            except BaseException:
                connection.release()
                raise
        return connection


def _headers(call: Call, access: Access) -> CIMultiDict[str]:
    headers = CIMultiDict(access.headers)
    if call.body is not None:
        headers["Content-Type"] = call.content_type
    if call.compressed:
        headers["Accept-Encoding"] = "gzip"
    if call.accept is not None:
        headers["Accept"] = call.accept
    return headers


def _api_error(response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        # A proxy or a server that is shutting down answers in plain text.
        status = _Status(message=body.decode(errors="replace").strip(), reason=response.reason or "")
    message = status.message or f"the API server answered {response.status} {response.reason} without a message"
    return from_status(response.status, status.reason, message, _retry_after(response))


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None


def _keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices within half a minute that the peer has vanished without closing the connection."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
    return sock
