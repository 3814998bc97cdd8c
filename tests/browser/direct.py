"""The console over a fleet that is given to it directly: no cluster, no sign-in. For what only has to be seen, and for
fleets larger than this machine could run."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
import uvicorn
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from browser.sample_fleet import sample_usage
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.api.ray.view import RayClusterView, RayJobView, RayServiceView
from gpu_control_plane.console.card_history import CardHistory
from gpu_control_plane.console.headers import SecurityHeaders
from gpu_control_plane.console.live import Changes, LivePages
from gpu_control_plane.console.metrics import ConsoleMetrics
from gpu_control_plane.console.pages import PAGES
from gpu_control_plane.console.rendering import make_environment
from gpu_control_plane.console.settings import ConsoleSettings
from gpu_control_plane.console.static_files import StaticFiles
from gpu_control_plane.console.usage_answers import UsageAnswers
from gpu_control_plane.kube.access_review import Right
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.views.fleet import Fleet
from waiting import until

KINDS: tuple[type[Object], ...] = (
    GPUDevice,
    GPUNodeState,
    GPUPool,
    Node,
    WaitingPod,
    Event,
    StoredClusterPolicy,
    StoredNVIDIADriver,
    RayClusterView,
    RayJobView,
    RayServiceView,
)


class GivenObjects:
    """Stands for a cache: what was given, and who wants to know of changes."""

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        self.objects = tuple(objects)
        self.is_synced = bool(self.objects)
        self._handlers: list[Callable[[Object | None, Object | None], None]] = []

    def __iter__(self) -> Any:
        return iter(self.objects)

    def on_change(self, handler: Callable[[Object | None, Object | None], None]) -> None:
        self._handlers.append(handler)

    def change(self) -> None:
        for handler in self._handlers:
            handler(None, None)


class GivenFleet:
    """The caches of a console, filled by hand."""

    def __init__(self, fleet: Fleet, **others: Iterable[Object]) -> None:
        self.fleet = fleet
        self.policies = GivenObjects(others.get("policies", ()))
        self.drivers = GivenObjects(others.get("drivers", ()))
        self.rays = GivenObjects(others.get("rays", ()))
        self.ray_jobs = GivenObjects(others.get("ray_jobs", ()))
        self.ray_services = GivenObjects(others.get("ray_services", ()))
        self.events = (GivenObjects(others.get("events", ())),)
        plain = {kind: (GivenObjects(),) for kind in KINDS}
        self.kinds = plain | {
            Event: self.events,
            StoredClusterPolicy: (self.policies,),
            StoredNVIDIADriver: (self.drivers,),
        }

    def whole(self) -> Fleet:
        return self.fleet

    async def scope_of(self, _viewer: object) -> str:
        return "everything"

    async def seen_by(self, _viewer: object) -> Fleet:
        return self.fleet

    def change(self, fleet: Fleet, *kinds: type[Object]) -> None:
        """Another fleet from now on; open pages are told that these kinds have changed."""
        self.fleet = fleet
        for kind in kinds:
            for cache in self.kinds[kind]:
                cache.change()


class Anybody:
    """Somebody who may do everything, or nothing but look."""

    name = "alice@example.com"
    groups = ("platform-admins", "system:authenticated")
    client = None

    def __init__(self, *, may_write: bool = True) -> None:
        self._may_write = may_write

    async def may(self, verb: str, *_what: object, **_where: object) -> bool:
        return self._may_write or verb in {"get", "list", "watch"}

    async def has(self, right: Right) -> bool:
        return await self.may(right.verb)

    async def require(self, right: Right) -> None:
        assert await self.has(right)

    async def namespaces_with(self, _verb: str, _what: object, among: Iterable[str]) -> frozenset[str]:
        return frozenset(among)


class _SignedIn:
    def __init__(self, app: ASGIApp, viewer: Anybody) -> None:
        self._app, self._viewer = app, viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["viewer"] = self._viewer
        scope["state"]["session"] = None
        await self._app(scope, receive, send)


def direct_app(caches: GivenFleet, viewer: Anybody | None = None, **state: Any) -> Starlette:
    static = StaticFiles()
    live = LivePages(PAGES, Changes(caches), ConsoleMetrics(CollectorRegistry()))  # type: ignore[arg-type]

    async def allowed() -> None:
        pass

    async def stream(request: Request) -> Response:
        page, as_page = live.find(request)
        messages = await live.stream(page, as_page, person="alice", still_allowed=allowed, ended=asyncio.Event())
        return StreamingResponse(messages, media_type="text/event-stream")

    app = Starlette(
        routes=[
            Route("/static/{path:path}", static.serve),
            Route("/stream", stream),
            *(Route(page.path, page.show, methods=list(page.methods)) for page in PAGES),
        ],
        middleware=[Middleware(SecurityHeaders, https=False), Middleware(_SignedIn, viewer=viewer or Anybody())],
    )
    app.state.templates = make_environment(static)
    app.state.caches = caches
    app.state.fleet = caches.seen_by
    app.state.settings = ConsoleSettings()
    app.state.prometheus = None
    app.state.card_history = CardHistory(datetime.now(UTC))
    app.state.usage = UsageAnswers(sample_usage(caches.fleet))
    for name, value in state.items():
        setattr(app.state, name, value)
    return app


class DirectConsole(msgspec.Struct, frozen=True):
    url: str
    caches: Any


@contextlib.asynccontextmanager
async def serving(caches: GivenFleet, port: int = 0, **options: Any) -> AsyncIterator[DirectConsole]:
    """The console over this fleet, on a port of loopback."""
    config = uvicorn.Config(direct_app(caches, **options), port=port, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield DirectConsole(f"http://127.0.0.1:{port}", caches)
    finally:
        server.should_exit = True
        server.force_exit = True
        await task
