"""Waiting until a cache shows what was written.

A reconcile that ended earlier would be followed by one that looks at an older picture, writes everything again and
tells people twice. The wait is a few milliseconds, and bounded: what is written twice does no harm.
"""

import asyncio
from collections.abc import Callable

from gpu_control_plane.kube import Cache, Key, Object


class Echoes[T: Object]:
    """Follows one cache. Waiting costs nothing while nobody waits."""

    def __init__(self, cache: Cache[T]) -> None:
        self._cache = cache
        self._waiting: dict[Key, list[tuple[Callable[[T | None], bool], asyncio.Event]]] = {}
        cache.on_change(self._changed)

    async def of(self, written: T) -> None:
        """Wait for this version of an object, or a later one."""
        version = int(written.metadata.resource_version or 0)
        await self._until(written.key, lambda held: held is not None and int(held.metadata.resource_version) >= version)

    async def of_deletion(self, deleted: T) -> None:
        """Wait until an object is gone or going."""
        uid = deleted.metadata.uid
        await self._until(deleted.key, lambda held: held is None or held.deleting or held.metadata.uid != uid)

    async def _until(self, key: Key, enough: Callable[[T | None], bool]) -> None:
        if enough(self._cache.at(key)):
            return
        waiter = (enough, asyncio.Event())
        waiters = self._waiting.setdefault(key, [])
        waiters.append(waiter)
        try:
            await waiter[1].wait()
        finally:
            waiters.remove(waiter)
            if not waiters:
                self._waiting.pop(key, None)

    def _changed(self, old: T | None, new: T | None) -> None:
        present = new if new is not None else old
        if present is None:
            return
        for enough, event in self._waiting.get(present.key, ()):
            if enough(new):
                event.set()
