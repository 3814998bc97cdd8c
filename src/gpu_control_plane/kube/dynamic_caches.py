"""Caches of one kind that come and go while the process runs: the pods of a node that is being drained, or a kind whose
CRD may appear later. What a process needs all the time is a cache of its `Runtime`.
"""

import asyncio
from collections.abc import Callable

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import EVERYTHING, Client, Selection
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.kube.watch import ApiSource


class DynamicCaches[T: Object]:
    """Caches by name. They are kept up to date while `run` runs, and failures of their watches are waited out."""

    def __init__(self, client: Client, kind: type[T]) -> None:
        self._client = client
        self._kind = kind
        self._caches: dict[str, Cache[T]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._caches

    def follow(
        self,
        name: str,
        selection: Selection = EVERYTHING,
        on_change: Callable[[T | None, T | None], None] | None = None,
    ) -> Cache[T]:
        """The cache of this name, started now unless it runs already; a new one calls `on_change` at every change."""
        held = self._caches.get(name)
        if held is None:
            source = ApiSource(self._client, self._kind, selection)
            held = self._caches[name] = Cache(
                self._kind, source, metrics=self._client.metrics, recovery=self._client.recovery
            )
            if on_change is not None:
                held.on_change(on_change)
            if self._group is not None:
                self._start(name, held)
        return held

    def forget(self, name: str) -> None:
        """End the cache of this name, if there is one."""
        self._caches.pop(name, None)
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    async def run(self) -> None:
        """Keep the caches up to date until cancelled; a service for `Runtime.service`."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for name, cache in self._caches.items():
                    self._start(name, cache)
                await asyncio.Event().wait()
        finally:
            self._group = None
            self._tasks.clear()

    def _start(self, name: str, cache: Cache[T]) -> None:
        assert self._group is not None  # noqa: S101 - the callers checked
        self._tasks[name] = self._group.create_task(cache.run())
