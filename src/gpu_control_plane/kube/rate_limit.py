"""Reconcile a key at most once in an interval: for work that one pass does for many changes."""

import asyncio

from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.objects import Key


class RateLimit:
    """When each key was last worked on. A reconcile calls `wait` first, and `mark` when it has done something."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._last: dict[Key, float] = {}

    def wait(self, key: Key) -> Requeue | None:
        """The requeue to return if it is too early for this key."""
        last = self._last.get(key)
        if last is None:
            return None
        left = last + self._interval - asyncio.get_running_loop().time()
        return Requeue(after=left) if left > 0 else None

    def mark(self, key: Key) -> None:
        self._last[key] = asyncio.get_running_loop().time()

    def forget(self, key: Key) -> None:
        self._last.pop(key, None)
