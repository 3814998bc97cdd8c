"""When something that has failed is tried again: after pauses that grow, by cluster and by what has failed.

Kept in memory: a process that begins to lead tries everything once more.
"""

import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gpu_control_plane.kube.backoff import Backoff
from gpu_control_plane.kube.sentences import shortened

_FIRST_SECONDS: Final = 1.0
_MESSAGE_LIMIT: Final = 1000
"""The API server quotes what it refuses, which may be as long as an object."""


class Attempt(msgspec.Struct, frozen=True):
    """What has failed, and when it may be tried again."""

    failures: int
    not_before: datetime
    reason: str
    message: str
    generation: int
    """Of the spec that failed: another one is tried at once."""


class Attempts:
    """What has failed of each cluster."""

    def __init__(self, longest: timedelta, rng: random.Random) -> None:
        self._backoff = Backoff(first=_FIRST_SECONDS, most=longest.total_seconds(), jitter=0.2)
        self._rng = rng
        self._held: dict[str, dict[str, Attempt]] = {}

    def failed(
        self, uid: str, what: str, reason: str, message: str, *, generation: int, now: datetime, free: int = 0
    ) -> None:
        """It has failed now. The first `free` failures cost no pause."""
        before = self.of(uid, generation).get(what)
        failures = (before.failures if before is not None else 0) + 1
        pause = self._backoff.delay(failures - free, self._rng) if failures > free else 0.0
        due = now + timedelta(seconds=pause)
        said = shortened(message, _MESSAGE_LIMIT)
        self._held.setdefault(uid, {})[what] = Attempt(failures, due, reason, said, generation)

    def succeeded(self, uid: str, what: str) -> None:
        held = self._held.get(uid)
        if held is not None:
            held.pop(what, None)

    def of(self, uid: str, generation: int) -> Mapping[str, Attempt]:
        """What has failed last with this spec, by what it is."""
        held = self._held.get(uid, {})
        return {what: attempt for what, attempt in held.items() if attempt.generation == generation}

    def forget(self, uid: str) -> None:
        self._held.pop(uid, None)

    def clear(self) -> None:
        self._held.clear()
