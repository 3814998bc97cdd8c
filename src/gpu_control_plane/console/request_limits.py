"""How many requests one person, or one address before any sign-in, may make."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

import msgspec

from gpu_control_plane.console.errors import TooManyRequests

_MOST_KEYS: Final = 10_000


class Limit(msgspec.Struct, frozen=True):
    """So many at once, then so many a second."""

    burst: float
    per_second: float


PER_PERSON: Final = Limit(burst=120, per_second=20)
PER_ADDRESS: Final = Limit(burst=60, per_second=5)
"""For requests without a valid sign-in: an office may stand behind one address."""
SIGN_INS: Final = Limit(burst=10, per_second=0.2)
"""Attempts to sign in, by address: guessing costs the API server a review."""


class _Bucket(msgspec.Struct):
    left: float
    at: float


class RequestLimits:
    """Token buckets by key. The keys that were seen longest ago are forgotten first."""

    def __init__(self, limit: Limit, now: Callable[[], float]) -> None:
        self._limit = limit
        self._now = now
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def take(self, key: Hashable) -> None:
        """Count a request; `TooManyRequests` if there were too many."""
        now = self._now()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._limit.burst, now)
            if len(self._buckets) > _MOST_KEYS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        bucket.left = min(self._limit.burst, bucket.left + (now - bucket.at) * self._limit.per_second)
        bucket.at = now
        if bucket.left < 1:
            raise TooManyRequests("There were too many requests. Wait a moment.")
        bucket.left -= 1
