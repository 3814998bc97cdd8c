"""When to try again after a conflict: as soon as a cache shows the write of the other writer.

Earlier would be refused again, and later meets the next write of an object that is written all the time.
"""

from collections.abc import Iterable
from typing import Any

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.errors import StaleWrite
from gpu_control_plane.kube.objects import Key, Object


class ConflictRetries:
    """Keys whose write was stale, by the object whose next version each waits for."""

    def __init__(self, caches: Iterable[Cache[Any]]) -> None:
        self._caches = tuple(caches)
        self._waiting: dict[tuple[type[Object], Key], set[Key]] = {}

    def held_versions(self, stale: StaleWrite) -> list[str]:
        """The versions of the object that the caches hold; none where no cache watches it."""
        found = (cache.at(stale.key) for cache in self._caches if cache.kind is stale.kind)
        return [item.metadata.resource_version for item in found if item is not None]

    def wait(self, key: Key, stale: StaleWrite) -> None:
        """`key` is to be reconciled again once a cache shows another version of the object."""
        self._waiting.setdefault((stale.kind, stale.key), set()).add(key)

    def take(self, item: Object) -> Iterable[Key]:
        """The keys that waited for this object; they wait no longer."""
        return self._waiting.pop((type(item), item.key), ()) if self._waiting else ()
