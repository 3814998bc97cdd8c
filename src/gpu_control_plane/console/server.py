"""The console as a part of a runtime: its caches, its routes and the server that answers browsers."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gpu_control_plane.console.api.routes import api_routes
from gpu_control_plane.console.capacity_history import CapacityHistory
from gpu_control_plane.console.card_history import CardHistory
from gpu_control_plane.console.errors import BadRequest, NoSuchThing, NotAllowed, NotSignedIn, Refused, Unavailable
from gpu_control_plane.console.fleet_caches import FleetCaches
from gpu_control_plane.console.gate import Gate, refusal
from gpu_control_plane.console.headers import SecurityHeaders
from gpu_control_plane.console.live import Changes, LivePages
from gpu_control_plane.console.metrics import ConsoleMetrics
from gpu_control_plane.console.page import Page, Show
from gpu_control_plane.console.pages import PAGES
from gpu_control_plane.console.prometheus_history import PrometheusHistory
from gpu_control_plane.console.rendering import make_environment
from gpu_control_plane.console.settings import ConsoleSettings
from gpu_control_plane.console.sign_in.link import OneTimeLink
from gpu_control_plane.console.sign_in.people import People
from gpu_control_plane.console.sign_in.routes import ONE_TIME_LINK, SignIn
from gpu_control_plane.console.static_files import StaticFiles
from gpu_control_plane.console.usage_answers import UsageAnswers, read_usage
from gpu_control_plane.kube import Runtime
from gpu_control_plane.kube.errors import ConfigError, Forbidden, KubeError, NotFound, Unauthorized, Unreachable

_GRACE_SECONDS: Final = 3
_MOST_CONNECTIONS: Final = 2500
_CERTIFICATE_SECONDS: Final = 60.0

_log = structlog.get_logger(component="console")


class Console:
    """Everything between the caches and a browser."""

    def __init__(self, runtime: Runtime, settings: ConsoleSettings, pages: Sequence[Page] = PAGES) -> None:
        settings.check()
        self._runtime = runtime
        self._settings = settings
        self._metrics = ConsoleMetrics(runtime.metrics.registry)
        self._caches = FleetCaches(runtime)
        self._history = CapacityHistory(self._caches.whole)
        runtime.service(self._history.run)
        self._card_history = CardHistory(datetime.now(UTC))
        self._caches.cards.on_change(self._card_history.follow)
        self._people = People(runtime.unfenced_client, settings, self._metrics)
        link = OneTimeLink(runtime.unfenced_client, settings.address_file) if settings.signed_in_as_kubeconfig else None
        self._link = link
        self._live = LivePages(pages, Changes(self._caches), self._metrics)
        self._sign_in = SignIn(self._people, settings, self._metrics, link)
        self._static = StaticFiles()
        self.app = self._make_app(pages)
        self.port = settings.port
        self._listening = self._ended = False
        runtime.status.ready("console", lambda: None if self._listening else "it does not listen yet")
        runtime.status.alive("console", lambda: "its server has ended" if self._ended else None)

    @property
    def ready(self) -> bool:
        """Whether the caches are complete."""
        return self._caches.complete

    def _make_app(self, pages: Sequence[Page]) -> Starlette:
        app = Starlette(
            routes=[
                Route("/static/{path:path}", self._static.serve),
                *self._sign_in.routes(),
                Route("/stream", self._stream),
                *api_routes(),
                *(Route(page.path, _guarded(page), methods=list(page.methods)) for page in pages),
            ],
            middleware=[
                Middleware(SecurityHeaders, https=self._settings.https),
                Middleware(Gate, settings=self._settings, people=self._people, metrics=self._metrics),
            ],
            exception_handlers={
                Refused: self._refuse,
                KubeError: self._explain,
                HTTPException: _no_page,
            },
        )
        app.state.templates = make_environment(self._static)
        app.state.caches = self._caches
        app.state.fleet = self._caches.seen_by
        app.state.people = self._people
        app.state.settings = self._settings
        app.state.history = self._history
        app.state.card_history = self._card_history
        prometheus = self._settings.prometheus_url
        app.state.prometheus = PrometheusHistory(prometheus) if prometheus is not None else None
        app.state.usage = UsageAnswers(read_usage(self._runtime.unfenced_client, self._caches, prometheus))
        return app

    async def _stream(self, request: Request) -> Response:
        page, as_page = self._live.find(request)
        session = request.state.session

        async def still_allowed() -> None:
            as_page.state.viewer = await request.state.check_again()
            await _require(page, as_page)

        await still_allowed()
        ended = session.ended if session is not None else asyncio.Event()
        messages = await self._live.stream(
            page, as_page, person=request.state.viewer.name, still_allowed=still_allowed, ended=ended
        )
        return StreamingResponse(
            messages, media_type="text/event-stream", headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
        )

    async def _refuse(self, request: Request, refused: Exception) -> Response:
        assert isinstance(refused, Refused)  # noqa: S101 - registered for it
        self._metrics.refusals.labels(refused.reason).inc()
        return refusal(request, refused)

    async def _explain(self, request: Request, error: Exception) -> Response:
        """What the API server said to something that a person asked for."""
        return await self._refuse(request, _refused_by_server(error))

    async def serve(self) -> None:
        """Answer browsers until cancelled."""
        settings = self._settings
        config = uvicorn.Config(
            self.app,
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            h11_max_incomplete_event_size=32 * 1024,
            timeout_keep_alive=30,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            ssl_certfile=str(settings.certificate) if settings.certificate is not None else None,
            ssl_keyfile=str(settings.key) if settings.key is not None else None,
        )
        try:
            config.load()
            listener = _listen(settings.host, settings.port)
        except OSError as error:
            raise ConfigError(
                f"The console cannot listen on {settings.host}:{settings.port} ({error.strerror or error}). "
                "Stop what holds the port, choose another, or check the certificate."
            ) from error
        self.port = listener.getsockname()[1]
        self._announce()
        async with _renewing(config):
            await self._run(_Server(config), listener)

    async def _run(self, server: uvicorn.Server, listener: socket.socket) -> None:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        self._listening = True
        try:
            await asyncio.shield(running)
            self._ended = True
        except asyncio.CancelledError:
            self._live.stop()
            server.should_exit = True
            await running
            raise
        finally:
            listener.close()

    def _announce(self) -> None:
        settings = self._settings
        scheme = "https" if settings.certificate is not None else "http"
        address = settings.public_url or f"{scheme}://{settings.host}:{self.port}"
        _log.info("console ready", address=address)
        if self._link is not None:
            self._link.publish(f"{address}{ONE_TIME_LINK}")
            if settings.address_file is None:
                print(f"Open {self._link.url}", flush=True)  # noqa: T201 - for the person who started it


def build(runtime: Runtime, settings: ConsoleSettings) -> Console:
    """Add the console to a runtime."""
    console = Console(runtime, settings)
    runtime.service(console.serve)
    return console


def _guarded(page: Page) -> Show:
    async def show(request: Request) -> Response:
        await _require(page, request)
        return await page.show(request)

    return show


async def _require(page: Page, request: Request) -> None:
    for right in page.needs:
        await request.state.viewer.require(right(request))


async def _no_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    if error.status_code == 404:  # noqa: PLR2004 - Starlette has no class for it
        return refusal(request, NoSuchThing("There is no such page."))
    return refusal(request, BadRequest(f"{error.detail}."))


def _refused_by_server(error: Exception) -> Refused:
    match error:
        case Forbidden():
            return NotAllowed(str(error))
        case NotFound():
            return NoSuchThing(str(error))
        case Unauthorized():
            return NotSignedIn("The cluster does not take your token any more. Sign in again.")
        case Unreachable():
            return Unavailable("The cluster does not answer. Try again.")
        case _:
            return BadRequest(str(error))


class _Server(uvicorn.Server):
    """Signals are the runtime's: it stops this server in its turn."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=256)


@contextlib.asynccontextmanager
async def _renewing(config: uvicorn.Config) -> AsyncIterator[None]:
    """Read the certificate again every minute: whoever renews it writes the same files."""

    async def renew(context: ssl.SSLContext) -> None:
        while True:
            await asyncio.sleep(_CERTIFICATE_SECONDS)
            try:
                await asyncio.to_thread(context.load_cert_chain, str(config.ssl_certfile), str(config.ssl_keyfile))
            except (OSError, ssl.SSLError) as error:
                _log.warning("certificate not renewed, the old one is kept", why=str(error))

    task = asyncio.create_task(renew(config.ssl)) if config.ssl is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
