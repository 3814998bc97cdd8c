"""An HTTPS server for admission webhooks, to be run on every replica.

It guarantees that the API server always gets an answer in time. What a handler decides is a response; what goes wrong
(a bug, a slow handler, a body that makes no sense) is an HTTP error with a Status, so that the webhook's failurePolicy
alone says what happens to the request.
"""

import asyncio
import math
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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

LARGEST_BODY = 8 * 1024 * 1024
"""An object may have 1.5 MiB in etcd and more on the wire; a review holds it twice."""

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
        read_on: float = 1.0,
        keep_connections: bool = True,
        linger: float = 0.0,
        drain: float = 15.0,
    ) -> None:
        self._tls = tls
        self._host = host
        self._port = port
        self._metrics = metrics or WebhookMetrics()
        self._time_limit = time_limit
        self._keep_connections = keep_connections
        self._linger = linger
        self._app = web.Application(client_max_size=largest_body)
        self._runner = web.AppRunner(
            self._app,
            access_log=None,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            lingering_time=read_on,
            shutdown_timeout=drain,
        )

    @property
    def port(self) -> int:
        """The port that is listened on, also when any (0) was asked for."""
        addresses = self._runner.addresses
        return int(addresses[0][1]) if addresses else self._port

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
        await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls).start()
        _log.info("webhooks served", port=self.port)
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._keep_connections = False
        try:
            await asyncio.sleep(self._linger)
        finally:
            await self._runner.cleanup()

    async def _respond[T: Object](
        self, http: web.Request, path: str, kind: type[T], handler: Handler[T]
    ) -> web.Response:
        start = time.perf_counter()
        operation, allowed, code = "", "", int(HTTPStatus.OK)
        try:
            async with _deadline(http, self._time_limit):
                request = _parsed(await _body(http), kind)
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
        except _Failure as failure:
            code = failure.code
            _log.warning("review not understood", path=path, code=code, error=str(failure))
            return _status(failure)
        except Exception as error:  # noqa: BLE001 - the API server must get an answer, whatever a handler does wrong
            code = HTTPStatus.INTERNAL_SERVER_ERROR
            _log.exception("webhook handler failed", path=path, operation=operation)
            message = f"The webhook {path} failed ({type(error).__name__}). Its log says why."
            return _status(_Failure(code, "InternalError", message))
        finally:
            self._metrics.requests.labels(path, operation, allowed, str(int(code))).inc()
            self._metrics.duration.labels(path, operation).observe(time.perf_counter() - start)


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


async def _body(http: web.Request) -> bytes:
    if http.content_type != "application/json":
        message = f"Reviews are sent as application/json, not as {http.content_type}."
        raise _Failure(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    try:
        return await http.read()
    except web.HTTPRequestEntityTooLarge:
        message = "The review is larger than any object can be."
        raise _Failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message) from None


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
