"""Not more often than that: for work that many changes ask for and that one pass does for all of them."""

import asyncio

from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.objects import Key


class RateLimit:
    """When each key was last worked on. A reconcile asks `wait` first, and says `mark` when it has done something."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._last: dict[Key, float] = {}

    def wait(self, key: Key) -> Requeue | None:
        """Come back later, if it is too early for this key."""
        last = self._last.get(key)
        if last is None:
            return None
        left = last + self._interval - asyncio.get_running_loop().time()
        return Requeue(after=left) if left > 0 else None

    def mark(self, key: Key) -> None:
        self._last[key] = asyncio.get_running_loop().time()

    def forget(self, key: Key) -> None:
        self._last.pop(key, None)
