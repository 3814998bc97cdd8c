"""A slow node: whatever happens, it reacts later."""

from collections.abc import Callable


class Slowness:
    """When a node that is slow may react to what woke it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._due: dict[str, float] = {}

    def pause(self, node: str, seconds: float) -> float:
        """How long the node has to wait yet; 0 when its time has come, and the next waking starts anew."""
        now = self._monotonic()
        due = self._due.setdefault(node, now + seconds)
        if seconds and now < min(due, now + seconds):
            return min(due, now + seconds) - now
        del self._due[node]
        return 0.0
