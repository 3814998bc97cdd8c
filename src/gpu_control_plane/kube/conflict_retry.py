"""When to try again after somebody else's write was faster: as soon as a cache shows what they wrote.

Earlier would be refused again, and later meets the next write of an object that is written all the time.
"""

from collections.abc import Iterable
from typing import Any

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.errors import StaleWrite
from gpu_control_plane.kube.objects import Key, Object


class ConflictRetries:
    """Keys whose write came too late, by the object whose next version each waits for."""

    def __init__(self, caches: Iterable[Cache[Any]]) -> None:
        self._caches = tuple(caches)
        self._waiting: dict[tuple[type[Object], Key], set[Key]] = {}

    def held(self, about: StaleWrite) -> list[str]:
        """The versions of the object that caches show; none where they do not follow it."""
        found = (cache.at(about.key) for cache in self._caches if cache.kind is about.kind)
        return [item.metadata.resource_version for item in found if item is not None]

    def wait(self, key: Key, about: StaleWrite) -> None:
        """`key` is to be worked on again once the object has another version."""
        self._waiting.setdefault((about.kind, about.key), set()).add(key)

    def shown(self, item: Object) -> Iterable[Key]:
        """Those who waited for this object, none of whom waits any longer."""
        return self._waiting.pop((type(item), item.key), ()) if self._waiting else ()
