"""What every request has to pass before a page sees it, in this order: our name, our own pages, a signed-in person, and
not too many requests. Only the sign-in itself and the static files are open.
"""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpu_control_plane.console.audit import record_action
from gpu_control_plane.console.errors import BadRequest, NotSignedIn, Refused, Unavailable
from gpu_control_plane.console.metrics import ConsoleMetrics
from gpu_control_plane.console.origin import check_host, check_origin, is_unsafe
from gpu_control_plane.console.rendering import page_response
from gpu_control_plane.console.request_limits import PER_ADDRESS, PER_PERSON, RequestLimits
from gpu_control_plane.console.settings import ConsoleSettings
from gpu_control_plane.console.sign_in.people import People
from gpu_control_plane.console.viewer import Viewer

OPEN_PREFIXES: Final = ("/static/", "/sign-in")
"""What is answered without a sign-in: nothing of the cluster is in it."""

SESSION_COOKIE: Final = "gpu-session"

_LARGEST_BODY: Final = 1 << 20

_log = structlog.get_logger(component="console.gate")


class Gate:
    """Middleware around all routes: a route that is added later is behind it, too."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ConsoleSettings,
        people: People,
        metrics: ConsoleMetrics,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._settings = settings
        self._people = people
        self._metrics = metrics
        self._of_people: RequestLimits = RequestLimits(PER_PERSON, now)
        self._of_addresses: RequestLimits = RequestLimits(PER_ADDRESS, now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        begun, answered = time.perf_counter(), 0

        async def note_status(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = message["status"]
            await send(message)

        try:
            await self._admit(request)
            await self._app(scope, _limited(receive), note_status)
        except Refused as refused:
            self._metrics.refusals.labels(refused.reason).inc()
            await refusal(request, refused)(scope, receive, note_status)
        except ClientDisconnect:
            pass
        except Exception:  # noqa: BLE001 - a fault in one page must not show itself to a stranger
            _log.exception("request failed", route=route_of(request), method=request.method)
            if not answered:
                # No template: it may be what is at fault.
                text = "Something went wrong in the console; its log says what. Try again."
                await PlainTextResponse(text, HTTPStatus.INTERNAL_SERVER_ERROR)(scope, receive, note_status)
        finally:
            self._count(request, answered or HTTPStatus.INTERNAL_SERVER_ERROR, time.perf_counter() - begun)

    async def _admit(self, request: Request) -> None:
        """Put `viewer`, and `session` if there is one, into the request's state; or raise why not. What is answered for
        long calls `check_again` from time to time."""
        settings = self._settings
        request.state.address = client_address(request, behind_proxy=settings.behind_tls_proxy)
        check_host(request.headers.get("host", ""), settings.public_url, loopback=settings.loopback)
        token = bearer_token(request)
        own = settings.public_url or f"{'https' if settings.https else 'http'}://{request.headers.get('host', '')}"
        check_origin(request.method, request.headers, own.rstrip("/"), with_cookie=token is None)
        if request.url.path.startswith(OPEN_PREFIXES):
            if not request.url.path.startswith("/static/"):
                self._of_addresses.take(request.state.address)
            return
        request.state.check_again = lambda: self._viewer(request, token)
        if token is None:
            viewer = await self._viewer_of_cookie(request)
        else:
            # Before the API server is asked: guessing costs it a review each.
            if not self._people.knows(token):
                self._of_addresses.take(request.state.address)
            viewer = await self._viewer(request, token)
        self._of_people.take(viewer.name)
        request.state.viewer = viewer

    async def _viewer_of_cookie(self, request: Request) -> Viewer:
        try:
            return await self._viewer(request, None)
        except NotSignedIn:
            self._of_addresses.take(request.state.address)
            raise

    async def _viewer(self, request: Request, token: str | None) -> Viewer:
        if token is not None:
            request.state.session = None
            return await self._people.viewer_of_token(token)
        session = self._people.find_session(session_cookie(request, self._settings) or "")
        if session is None:
            raise NotSignedIn("Sign in first.")
        request.state.session = session
        return await self._people.viewer_of_session(session)

    def _count(self, request: Request, status: int, seconds: float) -> None:
        route = route_of(request)
        self._metrics.requests.labels(route, str(int(status))).inc()
        if route != "/stream":
            self._metrics.request_seconds.labels(route).observe(seconds)
        if is_unsafe(request.method):
            viewer: Viewer | None = getattr(request.state, "viewer", None)
            record_action(
                self._metrics,
                request,
                route=route,
                status=status,
                person=viewer.name if viewer is not None else None,
                address=getattr(request.state, "address", ""),
            )


def _limited(receive: Receive) -> Receive:
    """The body of a request, as long as it is not larger than any of ours."""
    size = 0

    async def receive_some() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > _LARGEST_BODY:
            raise BadRequest("That is more than is taken at once.")
        return message

    return receive_some


def refusal(request: Request, refused: Refused) -> Response:
    """The answer to a request that is refused: the way to sign in, a page for a person, or JSON for a program."""
    if wants_html(request):
        if isinstance(refused, NotSignedIn) and request.method == "GET" and "hx-request" not in request.headers:
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/sign-in?{urlencode({'next': here})}", 303)
        response: Response = page_response(request, "refused.html", refused.status, refused=refused)
    else:
        response = JSONResponse({"reason": refused.reason, "message": str(refused)}, refused.status)
    if isinstance(refused, NotSignedIn):
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(refused, Unavailable):
        response.headers["Retry-After"] = "5"
    return response


def wants_html(request: Request) -> bool:
    """Whether a person looks at the answer, and not a program."""
    accepts = request.headers.get("accept", "")
    return not request.url.path.startswith("/api/") and "text/html" in accepts and "text/event-stream" not in accepts


def route_of(request: Request) -> str:
    """The path as the table of routes has it: what people type must not make new series of a metric."""
    route = request.scope.get("route")
    path = getattr(route, "path", None)
    return path if isinstance(path, str) else "none"


def client_address(request: Request, *, behind_proxy: bool) -> str:
    """Who is calling: behind a proxy of ours, the last address in X-Forwarded-For, which that proxy wrote."""
    if behind_proxy:
        forwarded = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        if forwarded:
            return forwarded
    return request.client.host if request.client is not None else ""


def bearer_token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def cookie_name(name: str, settings: ConsoleSettings) -> str:
    """With the prefix by which browsers keep a cookie to this host and TLS; they drop such cookies on plain HTTP."""
    return f"__Host-{name}" if settings.https else name


def session_cookie(request: Request, settings: ConsoleSettings) -> str | None:
    return request.cookies.get(cookie_name(SESSION_COOKIE, settings))
