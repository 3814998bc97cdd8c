"""One HTTP exchange with a dashboard, which belongs to a user of the cluster and is not trusted.

Every exchange has a deadline. No redirect is followed, no cookie is kept, no more is read than a limit, and nothing on
this node or on the link of its machine is called: whoever may write a Service can point it anywhere.
"""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec
import yarl
from aiohttp.abc import AbstractResolver, ResolveResult

from gpu_control_plane.kube.config import Config
from gpu_control_plane.kube.errors import KubeError
from gpu_control_plane.kube.proxy import proxy_for
from gpu_control_plane.ray.dashboard.errors import BadAnswer, CannotAsk, NoAnswer

TOKEN_HEADER: Final = "x-ray-authorization"  # noqa: S105 - the name of a header
"""Ray's own header: the API server keeps `Authorization` for itself."""

_USER_AGENT: Final = "gpu-control-plane"
_ERROR_LIMIT: Final = 64 << 10
_SUCCESS: Final = range(200, 300)
_RESOLVERS: Final = 16
_METADATA: Final = frozenset({"fd00:ec2::254", "100.100.100.200", "168.63.129.16"})
"""Where clouds tell a machine who it is, beside the addresses of its link: Amazon's, Alibaba's, Microsoft's."""
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

type Address = ipaddress.IPv4Address | ipaddress.IPv6Address
type Allowed = Callable[[Address], bool]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a dashboard is, and how one shows who one is."""

    url: str
    """`http://host:port`; or a path at the API server, which then passes requests on."""
    token: str = ""

    @property
    def through_api_server(self) -> bool:
        return self.url.startswith("/")


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that an exchange may take."""

    connect: float = 2.0
    read: float = 5.0
    read_through_api_server: float = 10.0
    write: float = 30.0
    """The first configuration of Ray Serve starts its controller, which takes 9 s on an idle machine."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked."""

    path: str
    method: str = "GET"
    body: bytes | None = None
    limit: int = 512 << 10
    """Bytes of an answer, beyond which it is not read. One about a job has its runtime environment and the end of its
    log."""


class Reply(msgspec.Struct, frozen=True):
    """What was answered."""

    code: int
    body: bytes

    @property
    def successful(self) -> bool:
        return self.code in _SUCCESS


def is_reachable(address: Address) -> bool:
    """Whether a dashboard may have this address: not the node's own, none that only its link or nobody has, none of a
    cloud's metadata."""
    held = _within(address)
    nobodys = held.is_loopback or held.is_link_local or held.is_multicast or held.is_unspecified
    return not nobodys and str(held) not in _METADATA


def _within(address: Address) -> Address:
    """The address of version 4 that one of version 6 stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address


class Exchange:
    """Connections to all dashboards. Use inside `async with`."""

    def __init__(
        self,
        api_server: Config | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        deadlines: Deadlines | None = None,
        allowed: Allowed = is_reachable,
    ) -> None:
        """`api_server` is asked for targets behind it."""
        self._api_server = api_server
        self._environ = environ
        self._deadlines = deadlines or Deadlines()
        self._allowed = allowed
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, use_dns_cache=False, resolver=self._resolver()),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": _USER_AGENT, "Accept": "application/json", "Accept-Encoding": "identity"},
            auto_decompress=False,
        )
        return self

    def _resolver(self) -> "_GuardedResolver":
        """Where a proxy and the API server are, this process has been told; they may well be on its node."""
        known = [self._environ.get(name) for name in ("HTTP_PROXY", "http_proxy")]
        if self._api_server is not None:
            known += [self._api_server.server, self._api_server.proxy]
        return _GuardedResolver(self._allowed, frozenset(_host(url) for url in known if url))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, target: Target, ask: Ask) -> Reply:
        """Ask, and read what is answered, whatever its code. Raises `NoAnswer`, `BadAnswer` or `CannotAsk`."""
        if self._session is None:
            raise CannotAsk("the client of dashboards is closed")
        whole = self._whole(target, ask)
        try:
            async with asyncio.timeout(whole):
                request = await self._request(target, ask)
                async with self._session.request(
                    ask.method,
                    yarl.URL(request.url, encoded=True),
                    data=ask.body,
                    headers=_headers(request, target, ask),
                    ssl=request.ssl,
                    proxy=request.proxy,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, connect=min(self._deadlines.connect, whole)),
                ) as response:
                    reply = Reply(response.status, b"")
                    limit = ask.limit if reply.successful else _ERROR_LIMIT
                    return Reply(response.status, await _read(response, limit, target))
        except TimeoutError:
            raise NoAnswer(f"Ray's dashboard at {target.url} did not answer in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(_explain(error, target)) from error

    def _whole(self, target: Target, ask: Ask) -> float:
        if ask.body is not None:
            return self._deadlines.write
        return self._deadlines.read_through_api_server if target.through_api_server else self._deadlines.read

    async def _request(self, target: Target, ask: Ask) -> "_Request":
        if not target.through_api_server:
            url = target.url.rstrip("/") + ask.path
            proxy = proxy_for(url, None, self._environ)
            if proxy is None:
                self._check_literal(target)
            return _Request(url=url, proxy=proxy)
        if self._api_server is None:
            raise CannotAsk("requests to dashboards through the API server are off")
        try:
            access = await self._api_server.access()
        except KubeError as error:
            raise CannotAsk(str(error)) from error
        return _Request(
            url=self._api_server.server + target.url.rstrip("/") + ask.path,
            proxy=self._api_server.proxy,
            headers=access.headers,
            ssl=access.ssl,
        )

    def _check_literal(self, target: Target) -> None:
        """An address in place of a name is not resolved, so the resolver does not see it."""
        try:
            address = ipaddress.ip_address(urlsplit(target.url).hostname or "")
        except ValueError:
            return
        if not self._allowed(address):
            raise CannotAsk(f"{target.url} is no address that a pod may have")


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    proxy: str | None = None
    headers: Mapping[str, str] = {}
    ssl: Any = True


class _GuardedResolver(AbstractResolver):
    """Resolves names in threads of its own, and leaves out addresses that no dashboard may have."""

    def __init__(self, allowed: Allowed, known: frozenset[str]) -> None:
        self._allowed = allowed
        self._known = known
        self._threads = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="dashboard-dns")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        def look_up() -> list[tuple[socket.AddressFamily, str]]:
            answers = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
            return [(answer[0], str(answer[4][0])) for answer in answers]

        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        usable = [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST)
            for kind, address in found
            if host in self._known or self._allowed(ipaddress.ip_address(address.partition("%")[0]))
        ]
        if found and not usable:
            raise OSError(f"{host} is at an address that a pod cannot have")
        return usable

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _host(url: str) -> str:
    return urlsplit(url if "://" in url else f"http://{url}").hostname or ""


def _headers(request: _Request, target: Target, ask: Ask) -> dict[str, str]:
    token = {TOKEN_HEADER: f"Bearer {target.token}"} if target.token else {}
    content = {"Content-Type": "application/json"} if ask.body is not None else {}
    return {**request.headers, **token, **content}


async def _read(response: aiohttp.ClientResponse, limit: int, target: Target) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(65536):
        body += chunk
        if len(body) > limit:
            response.close()
            raise BadAnswer(
                f"Ray's dashboard at {target.url} answered with more than {limit >> 10} KiB; that is not read"
            )
    return bytes(body)


def _explain(error: Exception, target: Target) -> str:
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"the proxy for Ray's dashboard at {target.url} does not answer; check HTTP_PROXY and NO_PROXY"
    if isinstance(error, aiohttp.ClientConnectorError):
        why = error.os_error.strerror or error.os_error
        return f"cannot connect to Ray's dashboard at {target.url} ({why})"
    return f"the connection to Ray's dashboard at {target.url} broke ({str(error) or type(error).__name__})"
