"""The pages of signing in and out. They are the only ones that somebody unknown gets an answer from."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gpu_control_plane.console.errors import NotSignedIn, Refused
from gpu_control_plane.console.gate import SESSION_COOKIE, cookie_name
from gpu_control_plane.console.metrics import ConsoleMetrics
from gpu_control_plane.console.origin import local_path
from gpu_control_plane.console.rendering import page_response
from gpu_control_plane.console.request_limits import SIGN_INS, RequestLimits
from gpu_control_plane.console.settings import ConsoleSettings
from gpu_control_plane.console.sign_in.link import OneTimeLink
from gpu_control_plane.console.sign_in.oidc import Flow
from gpu_control_plane.console.sign_in.people import People

CALLBACK: Final = "/sign-in/callback"
"""Where the identity provider sends people back to: it has to know this address."""
ONE_TIME_LINK: Final = "/sign-in/link"
_FLOW_COOKIE: Final = "gpu-sign-in"
_FLOW_SECONDS: Final = 600
_MOST_FLOWS: Final = 2000
_LONGEST_FORM: Final = 32 * 1024

_log = structlog.get_logger(component="console.sign_in")


class SignIn:
    """The routes below `/sign-in`, and `/sign-out`."""

    def __init__(
        self,
        people: People,
        settings: ConsoleSettings,
        metrics: ConsoleMetrics,
        link: OneTimeLink | None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._people = people
        self._settings = settings
        self._metrics = metrics
        self._link = link
        self._now = now
        self._flows: OrderedDict[str, Flow] = OrderedDict()
        self._attempts = RequestLimits(SIGN_INS, now)

    def routes(self) -> list[Route]:
        found = [
            Route("/sign-in", self.show),
            Route("/sign-in/token", self.with_token, methods=["POST"]),
            Route("/sign-out", self.sign_out, methods=["POST"]),
        ]
        if self._people.provider is not None:
            found += [Route("/sign-in/oidc", self.begin), Route(CALLBACK, self.finish)]
        if self._link is not None:
            found.append(Route(ONE_TIME_LINK, self.by_link))
        return found

    async def show(self, request: Request) -> Response:
        return self._form(request)

    async def with_token(self, request: Request) -> Response:
        """Take a token that somebody pasted, such as one of `kubectl create token`."""
        self._attempts.take(request.state.address)
        async with request.form(max_files=0, max_fields=4, max_part_size=_LONGEST_FORM) as form:
            token, wanted = form.get("token"), form.get("next")
        if not isinstance(token, str) or not token.strip():
            return self._form(request, status=400, problem="Paste a token first.")
        try:
            cookie = await self._people.open_with_token(token.strip())
        except NotSignedIn as refused:
            self._metrics.sign_ins.labels("token", "refused").inc()
            return self._form(request, status=401, problem=str(refused))
        self._metrics.sign_ins.labels("token", "done").inc()
        return self._signed_in(cookie, wanted if isinstance(wanted, str) else None)

    async def begin(self, request: Request) -> Response:
        """Send the browser to the identity provider."""
        self._attempts.take(request.state.address)
        assert self._people.provider is not None  # noqa: S101 - the route exists only with one
        url, flow = await self._people.provider.begin(local_path(request.query_params.get("next")))
        self._flows[flow.state] = flow
        while len(self._flows) > _MOST_FLOWS:
            self._flows.popitem(last=False)
        response = RedirectResponse(url, 303)
        # The state comes back in the URL and in this cookie: a flow that another browser has begun is refused.
        self._set_cookie(response, _FLOW_COOKIE, flow.state, _FLOW_SECONDS)
        return response

    async def finish(self, request: Request) -> Response:
        """Take the code that the browser brings back."""
        self._attempts.take(request.state.address)
        assert self._people.provider is not None  # noqa: S101 - the route exists only with one
        state = request.query_params.get("state", "")
        flow = self._flows.pop(state, None)
        mine = request.cookies.get(cookie_name(_FLOW_COOKIE, self._settings))
        try:
            if flow is None or mine != state or self._now() - flow.began > _FLOW_SECONDS:
                raise NotSignedIn("This sign-in has expired, or was begun in another browser. Sign in again.")
            if (error := request.query_params.get("error")) is not None:
                _log.info("identity provider refuses", error=error[:64])
                raise NotSignedIn("The identity provider did not let you in.")
            tokens = await self._people.provider.finish(flow, request.query_params.get("code", ""))
            cookie = await self._people.open_with_provider(tokens)
        except Refused as refused:
            self._metrics.sign_ins.labels("oidc", "refused").inc()
            return self._form(request, status=refused.status, problem=str(refused))
        self._metrics.sign_ins.labels("oidc", "done").inc()
        response = self._signed_in(cookie, flow.next)
        response.delete_cookie(cookie_name(_FLOW_COOKIE, self._settings), secure=self._settings.https, httponly=True)
        return response

    async def by_link(self, request: Request) -> Response:
        """Take the one-time token of the printed address."""
        self._attempts.take(request.state.address)
        assert self._link is not None  # noqa: S101 - the route exists only with one
        try:
            owner = await self._link.use(request.query_params.get("token", ""))
        except NotSignedIn as refused:
            self._metrics.sign_ins.labels("link", "refused").inc()
            return self._form(request, status=401, problem=str(refused))
        self._metrics.sign_ins.labels("link", "done").inc()
        return self._signed_in(self._people.open_as_owner(owner), request.query_params.get("next"))

    async def sign_out(self, request: Request) -> Response:
        if request.state.session is not None:
            self._people.sign_out(request.state.session)
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(cookie_name(SESSION_COOKIE, self._settings), secure=self._settings.https, httponly=True)
        return response

    def _form(self, request: Request, status: int = 200, problem: str = "") -> Response:
        return page_response(
            request,
            "sign_in.html",
            status,
            problem=problem,
            next=local_path(request.query_params.get("next")),
            oidc=self._people.provider is not None,
            link=self._link is not None,
        )

    def _signed_in(self, cookie: str, wanted: str | None) -> Response:
        response = RedirectResponse(local_path(wanted), 303)
        self._set_cookie(response, SESSION_COOKIE, cookie, int(self._settings.session_lifetime.total_seconds()))
        return response

    def _set_cookie(self, response: Response, name: str, value: str, seconds: int) -> None:
        response.set_cookie(
            cookie_name(name, self._settings),
            value,
            max_age=seconds,
            secure=self._settings.https,
            httponly=True,
            samesite="lax",
        )
