"""People's sessions: the browser has a random id in a cookie, and the tokens stay here, in memory.

A restart of the console ends them; who signs in by an identity provider is sent there and back. Their number is
bounded, and a person who opens too many loses the oldest.
"""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from gpu_control_plane.console.identity import Person
from gpu_control_plane.kube.client import Client

_MOST_OF_A_PERSON: Final = 20


class Session(msgspec.Struct, kw_only=True):
    """One browser of one person. `token` is shown to the API server; it is never shown to the browser."""

    person: Person
    way: str
    """How the person signed in: `oidc`, `token` or `link`."""
    began: float
    seen: float
    token: str | None = None
    refresh_token: str | None = None
    token_expires: float | None = None
    """When the token has to be refreshed at the latest, in seconds since the epoch."""
    subject: str = ""
    """Whom the identity provider means: a refreshed token must be for the same."""
    client: Client | None = None
    """Made with the first use, and again with a new token."""
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    renewing: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class Sessions:
    """By a digest of the cookie: what is in memory does not let anybody in."""

    def __init__(
        self, *, now: Callable[[], float], lifetime: float, idle: float, most: int, on_count: Callable[[int], None]
    ) -> None:
        self._now = now
        self._lifetime = lifetime
        self._idle = idle
        self._most = most
        self._on_count = on_count
        self._held: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def open(self, session: Session) -> str:
        """Begin a session; returns what the cookie holds."""
        self._drop_expired()
        same = [key for key, held in self._held.items() if held.person == session.person]
        for key in same[: max(0, len(same) - _MOST_OF_A_PERSON + 1)]:
            self._end(key)
        while len(self._held) >= self._most:
            self._end(next(iter(self._held)))
        cookie = secrets.token_urlsafe(32)
        self._held[_digest(cookie)] = session
        self._on_count(len(self._held))
        return cookie

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie, unless it has ended; it counts as used now."""
        key = _digest(cookie)
        session = self._held.get(key)
        if session is None:
            return None
        if self.is_over(session):
            self._end(key)
            return None
        session.seen = self._now()
        self._held.move_to_end(key)
        return session

    def is_over(self, session: Session) -> bool:
        """Whether it has lasted too long, or was not used for too long."""
        now = self._now()
        return session.ended.is_set() or now - session.began > self._lifetime or now - session.seen > self._idle

    def close(self, session: Session) -> None:
        for key in [key for key, held in self._held.items() if held is session]:
            self._end(key)

    def _drop_expired(self) -> None:
        for key in [key for key, held in self._held.items() if self.is_over(held)]:
            self._end(key)

    def _end(self, key: bytes) -> None:
        self._held.pop(key).ended.set()
        self._on_count(len(self._held))


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).digest()
