"""The objects of a kind in every namespace that is watched, seen as one cache.

With a list of namespaces there is a watch for each, so that the operator needs no rights beyond them.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from msgspec.structs import replace

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import EVERYTHING, Selection
from gpu_control_plane.kube.controller import Controller, always, itself
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.objects import Key, Object
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.signal import Signal

_EVERYWHERE: Final = None


class Watched[T: Object]:
    """One cache for each watched namespace, or one for the whole cluster."""

    def __init__(
        self, runtime: Runtime, kind: type[T], selection: Selection = EVERYTHING, namespaces: Iterable[str] = ()
    ) -> None:
        self.kind = kind
        self._caches: dict[str | None, Cache[T]] = {
            namespace: runtime.cache(kind, replace(selection, namespace=namespace))
            for namespace in (tuple(namespaces) or (_EVERYWHERE,))
        }

    def at(self, key: Key) -> T | None:
        cache = self._cache_of(key)
        return cache.at(key) if cache is not None else None

    def get(self, name: str, namespace: str | None) -> T | None:
        return self.at(Key(name, namespace))

    def by_index(self, index: str, value: str) -> list[T]:
        """The objects that an index files under `value`, of all watched namespaces."""
        return list(chain.from_iterable(cache.by_index(index, value) for cache in self._caches.values()))

    def index(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        for cache in self._caches.values():
            cache.index(name, function)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._caches.values())

    def __len__(self) -> int:
        return sum(len(cache) for cache in self._caches.values())

    def watch(
        self,
        controller: Controller | Signal,
        concerns: Callable[[T], Iterable[Key]] = itself,
        when: Callable[[T | None, T | None], bool] = always,
    ) -> None:
        """Let a controller or a signal watch them: `watched.watch(controller, concerns, when)`."""
        for cache in self._caches.values():
            controller.watch(cache, concerns, when)

    def on_change(self, handler: Callable[[T | None, T | None], None]) -> None:
        for cache in self._caches.values():
            cache.on_change(handler)

    def remove_handler(self, handler: Callable[[T | None, T | None], None]) -> None:
        for cache in self._caches.values():
            cache.remove_handler(handler)

    async def synced(self) -> None:
        await gather_all(cache.synced() for cache in self._caches.values())

    def learn(self, answer: T) -> None:
        """Show an object as the API server has just answered it."""
        cache = self._cache_of(answer.key)
        if cache is not None:
            cache.learn(answer)

    def _cache_of(self, key: Key) -> Cache[T] | None:
        return self._caches.get(key.namespace, self._caches.get(_EVERYWHERE))
