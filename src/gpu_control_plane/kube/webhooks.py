"""An HTTPS server for admission webhooks, to be run on every replica.

It guarantees that the API server always gets an answer in time, also while others send what is no review: bodies,
connections and what is kept of unfinished requests are bounded, and slow senders are given up. What a handler decides
is a response; what goes wrong (a bug, a slow handler, a body that makes no sense) is an HTTP error with a Status, so
that the webhook's failurePolicy alone says what happens to the request.
"""

import asyncio
import math
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from types import TracebackType
from typing import Self

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gpu_control_plane.kube.admission import (
    AdmissionRequest,
    AdmissionResponse,
    BadReviewError,
    Handler,
    encode_review,
    parse_review,
)
from gpu_control_plane.kube.certificate_secret import ServingCertificates
from gpu_control_plane.kube.objects import Key, Object
from gpu_control_plane.kube.webhook_connections import (
    FIRST_REVIEW_SECONDS,
    HANDSHAKE_SECONDS,
    MOST_CONNECTIONS,
    WebhookConnections,
)

LARGEST_BODY = 3 * 1024 * 1024
"""The API server takes no larger requests; an object has at most 1.5 MiB in etcd, and a review may hold it twice."""
_LARGE_BODY = 32 * 1024
"""A pool takes a few KiB. Of larger bodies only `_LARGE_AT_ONCE` are read at the same time, the others wait."""
_LARGE_AT_ONCE = 2
_BODY_SECONDS = 3.0
"""The API server sends a review at once."""
_READ_BUFFER_BYTES = 16 * 1024
_CALLER_GONE = 499
"""As nginx counts those who did not wait for the answer."""

_KEEPALIVE_SECONDS = 180.0
"""Longer than the 90 s after which the API server drops idle connections: it must never write into one we close."""

_HANDLER_SHARE = 0.9
"""The part of the API server's timeout that a handler may use."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

_log = structlog.get_logger(component="kube.webhooks")


class WebhookMetrics:
    """What webhooks report. `code` is the response's, or the HTTP error's when there was none."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.requests = Counter(
            "kube_webhook_requests_total",
            "Reviews answered; `allowed` is empty when the handler gave no response.",
            ("path", "operation", "allowed", "code"),
            registry=registry,
        )
        self.duration = Histogram(
            "kube_webhook_seconds",
            "Time from a review's arrival to its answer.",
            ("path", "operation"),
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge("kube_webhook_in_flight", "Reviews being answered.", ("path",), registry=registry)
        self.connections_closed = Counter(
            "kube_webhook_connections_closed_total",
            "Connections given up: `slow` (no review in time) or `limit` (there were too many).",
            ("reason",),
            registry=registry,
        )


class _Failure(Exception):
    def __init__(self, code: HTTPStatus, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class _Status(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    message: str
    reason: str
    code: int
    kind: str = "Status"
    api_version: str = "v1"
    status: str = "Failure"


class WebhookServer:
    """Register handlers, then use it as an async context manager: inside it serves, leaving it drains.

    On the way out it goes on answering for `linger` seconds (until the Service has dropped its endpoint), telling each
    caller to connect anew, then stops listening and lets reviews in flight finish within `drain` seconds.
    `keep_connections=False` makes callers connect anew for each review, which spreads them over replicas. `read_on` are
    the seconds to go on reading a body that was answered before it ended, so that the caller gets to see the answer.
    `connections` bounds who may be connected at a time.
    """

    def __init__(
        self,
        tls: ssl.SSLContext,
        *,
        host: str | None = None,
        port: int = 9443,
        metrics: WebhookMetrics | None = None,
        time_limit: float = 9.0,
        largest_body: int = LARGEST_BODY,
        body_limit: float = _BODY_SECONDS,
        connections: int = MOST_CONNECTIONS,
        handshake_within: float = HANDSHAKE_SECONDS,
        first_review_within: float = FIRST_REVIEW_SECONDS,
        read_on: float = 1.0,
        keep_connections: bool = True,
        linger: float = 0.0,
        drain: float = 15.0,
    ) -> None:
        self._host = host
        self._port = port
        self._metrics = metrics or WebhookMetrics()
        self._time_limit = time_limit
        self._keep_connections = keep_connections
        self._linger = linger
        self._largest_body = largest_body
        self._body_limit = body_limit
        self._large_bodies = asyncio.Semaphore(_LARGE_AT_ONCE)
        self._failures: dict[HTTPStatus, int] = {}
        self._connections = WebhookConnections(
            tls,
            self._metrics.connections_closed,
            most=connections,
            handshake_within=handshake_within,
            first_review_within=first_review_within,
        )
        self._app = web.Application()
        self._runner = web.AppRunner(
            self._app,
            access_log=None,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            handler_cancellation=True,
            lingering_time=read_on,
            read_bufsize=_READ_BUFFER_BYTES,
            shutdown_timeout=drain,
        )

    @property
    def port(self) -> int:
        """The port that is listened on, also when any (0) was asked for."""
        return self._connections.port or self._port

    def validating[T: Object](self, path: str, kind: type[T], handler: Handler[T]) -> None:
        """Serve a validating webhook: its handler allows or denies."""

        async def never_changing(request: AdmissionRequest[T]) -> AdmissionResponse:
            response = await handler(request)
            if response.document is not None:
                raise TypeError("a validating handler must not change the object")
            return response

        self.mutating(path, kind, never_changing)

    def mutating[T: Object](self, path: str, kind: type[T], handler: Handler[T]) -> None:
        """Serve a mutating webhook: its handler may also respond with `change`."""

        async def endpoint(http: web.Request) -> web.Response:
            with self._metrics.in_flight.labels(path).track_inprogress():
                response = await self._respond(http, path, kind, handler)
            if not self._keep_connections:
                response.force_close()
            return response

        self._app.router.add_post(path, endpoint)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101 - it is there after setup
        self._connections.listen(self._host, self._port, self._runner.server)
        _log.info("webhooks served", port=self.port)
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._keep_connections = False
        try:
            await asyncio.sleep(self._linger)
        finally:
            self._connections.stop_listening()
            await self._runner.cleanup()

    async def _respond[T: Object](
        self, http: web.Request, path: str, kind: type[T], handler: Handler[T]
    ) -> web.Response:
        start = time.perf_counter()
        operation, allowed, code = "", "", int(HTTPStatus.OK)
        try:
            async with _deadline(http, self._time_limit), self._body(http) as body:
                request = _parsed(body, kind)
                self._connections.reviewed(http.protocol)
                operation = request.operation.value
                response = await handler(request)
                content = encode_review(request, response)
            allowed, code = str(response.allowed).lower(), response.code
            if not response.allowed:
                _log.info(
                    "request denied",
                    path=path,
                    operation=operation,
                    object=str(Key(request.name, request.namespace)),
                    user=request.user.username,
                    reason=response.message,
                )
            return web.Response(body=content, content_type="application/json")
        except asyncio.CancelledError:
            code = _CALLER_GONE
            raise
        except _Failure as failure:
            code = failure.code
            self._log_failure(failure, path)
            return _status(failure)
        except Exception as error:  # noqa: BLE001 - the API server must get an answer, whatever a handler does wrong
            code = HTTPStatus.INTERNAL_SERVER_ERROR
            _log.exception("webhook handler failed", path=path, operation=operation)
            message = f"The webhook {path} failed ({type(error).__name__}). Its log says why."
            return _status(_Failure(code, "InternalError", message))
        finally:
            self._metrics.requests.labels(path, operation, allowed, str(int(code))).inc()
            self._metrics.duration.labels(path, operation).observe(time.perf_counter() - start)

    def _log_failure(self, failure: _Failure, path: str) -> None:
        """Once, and then at every doubling: whoever sends nonsense must not fill the log, too."""
        count = self._failures[failure.code] = self._failures.get(failure.code, 0) + 1
        if count & (count - 1) == 0:
            _log.warning("review not understood", path=path, code=int(failure.code), error=str(failure), count=count)

    @asynccontextmanager
    async def _body(self, http: web.Request) -> AsyncIterator[bytes]:
        """What was sent. Only a few large bodies are held at a time, until the block ends."""
        if http.content_type != "application/json":
            message = f"Reviews are sent as application/json, not as {http.content_type}."
            raise _Failure(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
        if (http.content_length or 0) > self._largest_body:
            raise _too_large()
        async with AsyncExitStack() as held:
            deadline = asyncio.timeout(self._body_limit)
            body = bytearray()
            try:
                async with deadline:
                    while chunk := await http.content.readany():
                        if len(body) <= _LARGE_BODY < len(body) + len(chunk):
                            # Its sender is not to blame for the wait.
                            deadline.reschedule(None)
                            await held.enter_async_context(self._large_bodies)
                            deadline.reschedule(asyncio.get_running_loop().time() + self._body_limit)
                        body += chunk
                        if len(body) > self._largest_body:
                            raise _too_large()
            except TimeoutError:
                if not deadline.expired():
                    raise
                message = f"The review did not arrive within {self._body_limit:g} s."
                raise _Failure(HTTPStatus.REQUEST_TIMEOUT, "Timeout", message) from None
            yield bytes(body)


def _too_large() -> _Failure:
    message = "The review is larger than any object can be."
    return _Failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message)


async def serve_webhooks(server: WebhookServer, certificates: ServingCertificates) -> None:
    """The whole of it as one service: serves as soon as there is a certificate, and until it is cancelled."""
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(certificates.run())
        try:
            await certificates.loaded()
            async with server:
                await asyncio.Event().wait()
        finally:
            keeping.cancel()


@asynccontextmanager
async def _deadline(http: web.Request, most: float) -> AsyncIterator[None]:
    """Answers before the API server gives up: it says in the query how long it waits."""
    limit = min(most, _seconds(http.query.get("timeout", "")) * _HANDLER_SHARE)
    deadline = asyncio.timeout(limit)
    try:
        async with deadline:
            yield
    except TimeoutError:
        if not deadline.expired():
            raise
        message = f"The webhook {http.path} did not decide within {limit:g} s. Try again, and look at its log."
        raise _Failure(HTTPStatus.GATEWAY_TIMEOUT, "Timeout", message) from None


def _parsed[T: Object](body: bytes, kind: type[T]) -> AdmissionRequest[T]:
    try:
        return parse_review(body, kind)
    except BadReviewError as error:
        raise _Failure(HTTPStatus.BAD_REQUEST, "BadRequest", f"{error}.") from None


def _status(failure: _Failure) -> web.Response:
    status = _Status(message=str(failure), reason=failure.reason, code=failure.code)
    return web.Response(body=msgspec.json.encode(status), status=failure.code, content_type="application/json")


def _seconds(duration: str) -> float:
    """A duration as Go writes it (`10s`, `1m30s`, `500ms`); infinite when it is none."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    parts = re.findall(r"([0-9.]+)(ms|h|m|s)", duration)
    try:
        return sum(float(number) * units[unit] for number, unit in parts) if parts else math.inf
    except ValueError:
        return math.inf
