"""A cache whose watch delivers what the test says."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.kube.watch import Batch


class ScriptedCache[T: Object]:
    """A cache, and the watch that feeds it."""

    def __init__(self, kind: type[T]) -> None:
        self.cache: Cache[T] = Cache(kind, self)
        self._queue: asyncio.Queue[Batch[T]] = asyncio.Queue()
        self._version = 1
        self._queue.put_nowait(Batch([], "1", synced=True))

    async def changes(self, since: str | None) -> AsyncGenerator[Batch[T]]:
        while True:
            yield await self._queue.get()
            self._queue.task_done()

    async def deliver(self, item: T, *, deleted: bool = False) -> None:
        """Deliver a change, and return when the cache has taken it in."""
        self._version += 1
        meta = msgspec.structs.replace(item.metadata, resource_version=str(self._version))
        self._queue.put_nowait(Batch([(msgspec.structs.replace(item, metadata=meta), deleted)], str(self._version)))
        await self._queue.join()


@asynccontextmanager
async def running(*scripts: ScriptedCache[Any]) -> AsyncIterator[None]:
    """Keep the caches current meanwhile."""
    tasks = [asyncio.create_task(script.cache.run()) for script in scripts]
    try:
        await asyncio.gather(*(script.cache.synced() for script in scripts))
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
