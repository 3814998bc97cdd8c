"""Who somebody is: what the API server's TokenReview says of their token, and nothing else.

So names and groups are those that RBAC knows, with whatever prefixes the cluster adds, and a token that the cluster
does not accept is no sign-in.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.console.errors import NotSignedIn, Unavailable
from gpu_control_plane.console.expiring_answers import ExpiringAnswers
from gpu_control_plane.console.metrics import ConsoleMetrics
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import KubeError
from gpu_control_plane.kube.objects import Object, Resource

_ACCEPTED_SECONDS: Final = 60.0
"""How long a token counts as valid after the API server has said so: as long at most does a revoked one work on."""
_REJECTED_SECONDS: Final = 5.0
_MOST_TOKENS: Final = 4096
_LONGEST_TOKEN: Final = 16 * 1024
_PATIENCE_SECONDS: Final = 5.0


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody, as the API server knows them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class _UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}

    def person(self) -> Person:
        return Person(name=self.username, uid=self.uid, groups=self.groups, extra=tuple(sorted(self.extra.items())))


class _TokenReviewStatus(msgspec.Struct, frozen=True, kw_only=True):
    authenticated: bool = False
    user: _UserInfo = _UserInfo()
    error: str = ""


class TokenReview(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(
        "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False
    )

    status: _TokenReviewStatus = _TokenReviewStatus()


class _SelfSubjectReviewStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    user_info: _UserInfo = _UserInfo()


class SelfSubjectReview(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(
        "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
    )

    status: _SelfSubjectReviewStatus = _SelfSubjectReviewStatus()


class TokenReviews:
    """Asks the API server about tokens. Answers hold for a minute, rejections for five seconds."""

    def __init__(self, client: Client, metrics: ConsoleMetrics, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._metrics = metrics
        self._answers: ExpiringAnswers[bytes, Person | None] = ExpiringAnswers(most=_MOST_TOKENS, now=now)

    async def person_of(self, token: str) -> Person:
        """Whose token it is. `NotSignedIn` if the API server does not accept it, `Unavailable` if it does not say."""
        if not token or len(token) > _LONGEST_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
            raise NotSignedIn("This is no token.")
        found = await self._answers.get(_digest(token), lambda: self._ask(token), _holds_for)
        if found is None:
            raise NotSignedIn("The cluster does not accept this token: it has expired, or is for another cluster.")
        return found

    def knows(self, token: str) -> bool:
        """Whether the API server has accepted it a moment ago: then asking costs nothing."""
        return self._answers.known(_digest(token)) is not None

    def forget(self, token: str) -> None:
        self._answers.forget(_digest(token))

    async def _ask(self, token: str) -> Person | None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                review = await self._client.create(TokenReview, {"spec": {"token": token}})
        except (KubeError, TimeoutError) as error:
            self._metrics.reviews.labels("token", "none").inc()
            raise Unavailable("The cluster does not answer, so nobody's identity can be checked. Try again.") from error
        accepted = review.status.authenticated and bool(review.status.user.username)
        self._metrics.reviews.labels("token", "yes" if accepted else "no").inc()
        return review.status.user.person() if accepted else None


async def read_own_person(client: Client) -> Person:
    """Who we are ourselves: for a console that works with its owner's kubeconfig."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return (await client.create(SelfSubjectReview, {})).status.user_info.person()
    except (KubeError, TimeoutError) as error:
        raise Unavailable("The cluster does not answer. Try again.") from error


def _holds_for(found: Person | None) -> float:
    return _REJECTED_SECONDS if found is None else _ACCEPTED_SECONDS


def _digest(token: str) -> bytes:
    """Tokens themselves are kept in sessions alone."""
    return hashlib.sha256(token.encode()).digest()
