"""What somebody may do: the API server's SubjectAccessReview, remembered for half a minute.

The console reads with its own rights and shows what it has read, so this question stands before everything it shows.
Where there is no answer, there is no page.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from gpu_control_plane.console.errors import Unavailable
from gpu_control_plane.console.expiring_answers import ExpiringAnswers
from gpu_control_plane.console.identity import Person
from gpu_control_plane.console.metrics import ConsoleMetrics
from gpu_control_plane.kube.access_review import Right, SelfSubjectAccessReview, Subject, SubjectAccessReview, spec_of
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import KubeError

_HOLDS_SECONDS: Final = 30.0
_MOST_ANSWERS: Final = 100_000
_PATIENCE_SECONDS: Final = 5.0


class Rights:
    """Asks the API server about rights. `Unavailable` where it does not answer."""

    def __init__(self, client: Client, metrics: ConsoleMetrics, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._metrics = metrics
        self._answers: ExpiringAnswers[tuple[Person | None, Right], bool] = ExpiringAnswers(most=_MOST_ANSWERS, now=now)

    async def allows(self, person: Person | None, right: Right) -> bool:
        """Whether this person has the right; None stands for the owner of our own credentials."""
        key = (person, right)
        return await self._answers.get(key, lambda: self._ask(person, right), lambda _allowed: _HOLDS_SECONDS)

    async def _ask(self, person: Person | None, right: Right) -> bool:
        kind: type[SubjectAccessReview] = SubjectAccessReview if person is not None else SelfSubjectAccessReview
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                review = await self._client.create(kind, {"spec": spec_of(right, _subject(person))})
        except (KubeError, TimeoutError) as error:
            self._metrics.reviews.labels("access", "none").inc()
            raise Unavailable("The cluster does not answer, so nobody's rights can be checked. Try again.") from error
        self._metrics.reviews.labels("access", "yes" if review.status.allowed else "no").inc()
        return review.status.allowed


def _subject(person: Person | None) -> Subject | None:
    if person is None:
        return None
    return Subject(name=person.name, uid=person.uid, groups=tuple(person.groups), extra=dict(person.extra))
