"""Sessions and tokens become viewers: with a token that is still good, and the rights it has now."""

import time
from collections.abc import Callable
from typing import Final

import structlog

from gpu_control_plane.console.errors import NotSignedIn
from gpu_control_plane.console.identity import Person, TokenReviews
from gpu_control_plane.console.metrics import ConsoleMetrics
from gpu_control_plane.console.rights import Rights
from gpu_control_plane.console.settings import ConsoleSettings
from gpu_control_plane.console.sign_in.oidc import IdentityProvider, Tokens
from gpu_control_plane.console.sign_in.sessions import Session, Sessions
from gpu_control_plane.console.viewer import Viewer, client_with_token, impersonating_client
from gpu_control_plane.kube.client import Client

_REFRESH_BEFORE_SECONDS: Final = 60.0

_log = structlog.get_logger(component="console.sign_in")


class People:
    """Who is signed in. All ways of signing in begin a session here; a program shows its token with each request."""

    def __init__(
        self,
        client: Client,
        settings: ConsoleSettings,
        metrics: ConsoleMetrics,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._reviews = TokenReviews(client, metrics)
        self._rights = Rights(client, metrics)
        self.provider = IdentityProvider(settings.oidc, now) if settings.oidc is not None else None
        self.sessions = Sessions(
            now=now,
            lifetime=settings.session_lifetime.total_seconds(),
            idle=settings.session_idle.total_seconds(),
            most=settings.most_sessions,
            on_count=metrics.sessions.set,
        )

    def find_session(self, cookie: str) -> Session | None:
        return self.sessions.find(cookie) if cookie else None

    def knows(self, token: str) -> bool:
        return self._reviews.knows(token)

    async def viewer_of_token(self, token: str) -> Viewer:
        """For a program, or a proxy that signs people in: nothing is remembered."""
        person = await self._reviews.person_of(token)
        return Viewer(person, self._rights, client_with_token(self._client, token))

    async def viewer_of_session(self, session: Session) -> Viewer:
        """The viewer, checked anew; `NotSignedIn` and the end of the session if the token is not good any more."""
        try:
            await self._keep_fresh(session)
            if session.token is not None and not self._impersonates(session):
                session.person = await self._reviews.person_of(session.token)
        except NotSignedIn:
            self.sessions.close(session)
            raise
        if session.client is None:
            session.client = self._client_of(session)
        return Viewer(session.person, self._rights, session.client, owner=session.way == "link")

    async def open_with_token(self, token: str) -> str:
        """Begin a session with a token of the cluster; returns its cookie."""
        person = await self._reviews.person_of(token)
        return self._open(Session(person=person, way="token", token=token, began=self._now(), seen=self._now()))

    async def open_with_provider(self, tokens: Tokens) -> str:
        """Begin a session with what the identity provider gave."""
        if self._settings.impersonate:
            person = person_of_claims(tokens, self._settings)
        else:
            try:
                person = await self._reviews.person_of(tokens.id_token)
            except NotSignedIn as error:
                raise NotSignedIn(
                    "The identity provider knows you, but the cluster does not take its tokens. An administrator sets "
                    "the API server up for this provider, or starts the console with --impersonate."
                ) from error
        return self._open(
            Session(
                person=person,
                way="oidc",
                token=tokens.id_token,
                refresh_token=tokens.refresh_token,
                token_expires=tokens.expires,
                subject=str(tokens.claims.get("sub", "")),
                began=self._now(),
                seen=self._now(),
            )
        )

    def open_as_owner(self, owner: Person) -> str:
        """Begin a session for the owner of our own credentials."""
        return self._open(Session(person=owner, way="link", began=self._now(), seen=self._now()))

    def sign_out(self, session: Session) -> None:
        if session.token is not None:
            self._reviews.forget(session.token)
        self.sessions.close(session)

    def _open(self, session: Session) -> str:
        _log.info("signed in", person=session.person.name, way=session.way)
        return self.sessions.open(session)

    def _impersonates(self, session: Session) -> bool:
        return session.way == "oidc" and self._settings.impersonate

    def _client_of(self, session: Session) -> Client:
        if session.token is None:
            return self._client
        if self._impersonates(session):
            return impersonating_client(self._client, session.person)
        return client_with_token(self._client, session.token)

    async def _keep_fresh(self, session: Session) -> None:
        """Refresh the token before it expires; one request does, the others wait for it."""
        if not self._is_due(session):
            return
        async with session.renewing:
            if not self._is_due(session):
                return
            if self.provider is None or session.refresh_token is None:
                if session.token_expires is not None and session.token_expires > self._now():
                    return
                raise NotSignedIn("Your sign-in has expired. Sign in again.")
            tokens = await self.provider.refresh(session.refresh_token, session.subject)
            session.token, session.refresh_token = tokens.id_token, tokens.refresh_token
            session.token_expires, session.client = tokens.expires, None
            if self._settings.impersonate:
                session.person = person_of_claims(tokens, self._settings)

    def _is_due(self, session: Session) -> bool:
        return session.token_expires is not None and session.token_expires - self._now() < _REFRESH_BEFORE_SECONDS


def person_of_claims(tokens: Tokens, settings: ConsoleSettings) -> Person:
    """Who the identity provider says somebody is. Names of Kubernetes' own users and groups are nobody's."""
    name = tokens.claims.get(settings.user_claim)
    if not isinstance(name, str) or not name:
        raise NotSignedIn(f"The identity provider's token has no {settings.user_claim}. Ask its administrator.")
    if settings.user_claim == "email" and tokens.claims.get("email_verified") is False:
        raise NotSignedIn("The identity provider has not verified your address.")
    given = tokens.claims.get(settings.groups_claim)
    groups = [group for group in given if isinstance(group, str)] if isinstance(given, list) else []
    named = f"{settings.user_prefix}{name}"
    if named.startswith("system:"):
        raise NotSignedIn("Nobody signs in as a user of Kubernetes itself.")
    theirs = (f"{settings.groups_prefix}{group}" for group in groups)
    return Person(
        name=named,
        groups=(*(group for group in theirs if not group.startswith("system:")), "system:authenticated"),
    )
