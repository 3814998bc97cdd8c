"""Reading one's own writes: a cache shows a write only when its watch event has arrived.

Whoever decides twice on the same picture hands one card to two pods. So the answer to each write is kept until the
cache has caught up with it.
"""

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.objects import Key, Object


class Fresh[T: Object]:
    """A cache together with the answers to writes that it does not show yet."""

    def __init__(self, cache: Cache[T]) -> None:
        self._cache = cache
        self._written: dict[Key, T] = {}
        cache.on_change(self._forget_deleted)

    def get(self, name: str, namespace: str | None = None) -> T | None:
        held = self._cache.get(name, namespace)
        return None if held is None else self._newer(held)

    def under(self, index: str, value: str) -> list[T]:
        return [self._newer(held) for held in self._cache.under(index, value)]

    def wrote(self, answer: T) -> None:
        """Remember what the API server said after a write."""
        self._written[answer.key] = answer

    def _forget_deleted(self, old: T | None, new: T | None) -> None:
        if new is None and old is not None:
            self._written.pop(old.key, None)

    def _newer(self, held: T) -> T:
        written = self._written.get(held.key)
        if written is None:
            return held
        if written.metadata.uid == held.metadata.uid and _version(written) > _version(held):
            return written
        del self._written[held.key]
        return held


def _version(item: Object) -> int:
    """Since Kubernetes 1.35 versions of one resource may be compared as numbers; every release wrote them so."""
    return int(item.metadata.resource_version or 0)
