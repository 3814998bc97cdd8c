"""The fleet as it changes, for `--watch` and `top`: watches tell, nothing is asked twice."""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Collection
from typing import Final, Never

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import EVERYTHING, Client, Selection
from gpu_control_plane.kube.errors import Forbidden, NotFound
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.views.fleet import Fleet, Missing
from gpu_control_plane.views.reading import EVERY_PART, Part, fleet_of, missing_of, selection_of

_SETTLING_SECONDS: Final = 0.2
"""How long changes are gathered before they are shown: one approval changes a card, its node and its pool."""


async def follow_fleet(
    client: Client,
    show: Callable[[Fleet], None],
    parts: Collection[Part] = EVERY_PART,
    *,
    cards: Selection = EVERYTHING,
    namespace: str | None = None,
) -> Never:
    """Show the fleet now, and again after each change, until cancelled; changes that come together are shown once.

    An API server that does not answer in the beginning is an error; later it is waited for.
    """
    gc.enable()
    for part in parts:
        with contextlib.suppress(Forbidden, NotFound):  # the fleet says what is missing
            await client.names(part.kind, selection_of(part, cards, namespace), limit=1)
    changed = asyncio.Event()
    caches = {
        part: Cache(part.kind, ApiSource(client, part.kind, selection_of(part, cards, namespace)))
        for part in Part
        if part in parts
    }
    for cache in caches.values():
        cache.on_change(lambda _old, _new: changed.set())
    running = [asyncio.create_task(cache.run()) for cache in caches.values()]
    try:
        await asyncio.gather(*(cache.synced_or_unavailable() for cache in caches.values()))
        while True:
            changed.clear()
            show(fleet_of({part: _held(cache) for part, cache in caches.items()}))
            await changed.wait()
            await asyncio.sleep(_SETTLING_SECONDS)
    finally:
        # No task group: an error of `show`, such as a pipe whose reader has ended, is to come out as itself.
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _held(cache: Cache[Object]) -> list[Object] | Missing:
    if not cache.is_synced and cache.watch_error is not None:
        return missing_of(cache.kind, cache.watch_error)
    return list(cache)
