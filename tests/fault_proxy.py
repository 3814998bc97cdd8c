"""A reverse proxy between our client and a real API server, which misbehaves on command.

Answers come from the real server; only the fault is ours. Every request is recorded, so that tests can count them.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict

from gpu_control_plane.kube.config import Config, load_config

_HOP_BY_HOP = frozenset({"host", "connection", "transfer-encoding", "content-length", "content-encoding"})


class Request(msgspec.Struct, frozen=True):
    """What the proxy saw of a request."""

    method: str
    path: str
    query: dict[str, str]

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"

    @property
    def is_write(self) -> bool:
        return self.method != "GET"


class Fault(msgspec.Struct, kw_only=True):
    """What goes wrong, with which requests, and how often."""

    when: Callable[[Request], bool] = lambda _request: True
    times: float = 1
    status: int | None = None
    """Answer with this instead of asking the server."""
    retry_after: int | None = None
    reason: str = ""
    message: str = "a planted fault"
    delay: float = 0.0
    """Hold the answer back."""
    lose_answer: bool = False
    """Carry the request out, then break the connection instead of answering."""
    cut_after: int | None = None
    """Break a streamed answer behind this many bytes, wherever that is."""
    silent_after: int | None = None
    """Send nothing more of a streamed answer behind this many bytes, without closing it."""

    @property
    def spent(self) -> bool:
        return self.times <= 0


class FaultProxy:
    """Start with `FaultProxy.before(config)`; give `proxy.config` to the client under test."""

    def __init__(self, session: aiohttp.ClientSession, upstream: Config) -> None:
        self._session = session
        self._upstream = upstream
        self.requests: list[Request] = []
        self.answers: list[tuple[Request, int]] = []
        """Requests the server has answered, with the code."""
        self.faults: list[Fault] = []
        self.config = upstream
        self._open: list[web.Request] = []
        self._cut_next = False
        self.on_request: Callable[[Request], Awaitable[None]] | None = None
        """Called before a request is passed on; `on_answer` after the server has carried it out."""
        self.on_answer: Callable[[Request], Awaitable[None]] | None = None
        self.on_chunk: Callable[[Request], Awaitable[None]] | None = None
        """Called before each piece of an answer is passed on; those of a watch come one by one."""

    @classmethod
    @asynccontextmanager
    async def before(cls, upstream: Config) -> AsyncIterator[Self]:
        # Watches of a process that was killed stay open for a while: with a limit, those of its successors would wait.
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(upstream.server, auto_decompress=False, connector=connector) as session:
            proxy = cls(session, upstream)
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", proxy._handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                host, port = runner.addresses[0][:2]
                proxy.config = plain_config(f"http://{host}:{port}")
                yield proxy
            finally:
                await runner.cleanup()

    def plant(self, fault: Fault) -> Fault:
        self.faults.append(fault)
        return fault

    @property
    def writes(self) -> list[Request]:
        return [request for request in self.requests if request.is_write]

    @property
    def watches(self) -> list[Request]:
        return [request for request in self.requests if request.is_watch]

    def cut_inside_next_event(self) -> None:
        """Break the stream that carries the next event in the middle of that event."""
        self._cut_next = True

    def cut_streams(self) -> None:
        """Break every answer that is being streamed now."""
        for incoming in self._open:
            _broken(incoming)

    async def _handle(self, incoming: web.Request) -> web.StreamResponse:
        try:
            return await self._pass_on(incoming)
        except aiohttp.ClientError:
            # The server is away, or the client has gone: what the other side sees is a broken connection.
            return _broken(incoming)

    async def _pass_on(self, incoming: web.Request) -> web.StreamResponse:
        request = Request(incoming.method, incoming.path, dict(incoming.query))
        self.requests.append(request)
        fault = self._due(request)
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.status is not None:
            return _refusal(fault)
        if self.on_request is not None:
            await self.on_request(request)
        access = await self._upstream.access()
        headers = CIMultiDict((k, v) for k, v in incoming.headers.items() if k.lower() not in _HOP_BY_HOP)
        headers.extend(access.headers)
        async with self._session.request(
            incoming.method,
            incoming.rel_url,
            data=await incoming.read(),
            headers=headers,
            ssl=access.ssl,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:
            self.answers.append((request, answer.status))
            if self.on_answer is not None:
                await self.on_answer(request)
            if fault.lose_answer:
                await answer.read()
                return _broken(incoming)
            return await self._relay(incoming, request, answer, fault)

    async def _relay(
        self, incoming: web.Request, request: Request, answer: aiohttp.ClientResponse, fault: Fault
    ) -> web.StreamResponse:
        kept = {"content-type", "content-encoding", "retry-after", "warning"}
        headers = {name: value for name, value in answer.headers.items() if name.lower() in kept}
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(incoming)
        self._open.append(incoming)
        try:
            await self._pump(incoming, request, answer, response, fault)
        finally:
            self._open.remove(incoming)
        return response

    async def _pump(
        self, incoming: web.Request, request: Request, answer: aiohttp.ClientResponse, response: web.StreamResponse,
        fault: Fault,
    ) -> None:  # fmt: skip
        left = fault.cut_after if fault.cut_after is not None else fault.silent_after
        async for chunk in answer.content.iter_any():
            if self.on_chunk is not None:
                await self.on_chunk(request)
            if self._cut_next and request.is_watch:
                self._cut_next = False
                await response.write(chunk[: len(chunk) // 2])
                _broken(incoming)
                return
            if left is not None and len(chunk) >= left:
                await response.write(chunk[:left])
                if fault.cut_after is not None:
                    _broken(incoming)
                    return
                await asyncio.Event().wait()
            if left is not None:
                left -= len(chunk)
            await response.write(chunk)
        await response.write_eof()

    def _due(self, request: Request) -> Fault:
        for fault in self.faults:
            if not fault.spent and fault.when(request):
                fault.times -= 1
                return fault
        return Fault()


def plain_config(server: str) -> Config:
    """A configuration for a server that wants neither TLS nor credentials."""
    with tempfile.NamedTemporaryFile("wb", suffix=".kubeconfig") as file:
        file.write(plain_kubeconfig(server))
        file.flush()
        return load_config(Path(file.name))


def plain_kubeconfig(server: str) -> bytes:
    """A kubeconfig for a server that wants neither TLS nor credentials."""
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
    )


def _refusal(fault: Fault) -> web.Response:
    status = {"kind": "Status", "status": "Failure", "code": fault.status, "reason": fault.reason}
    headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after is not None else {}
    body = msgspec.json.encode({**status, "message": fault.message})
    return web.Response(status=fault.status or 500, body=body, headers=headers, content_type="application/json")


def _broken(incoming: web.Request) -> web.Response:
    if incoming.transport is not None:
        incoming.transport.abort()
    return web.Response()
