"""The fleet, read from the API server with the rights of whoever asks: for commands, which have no caches.

Only the kinds that are asked for are read, all at once. What may not be read, or is not installed, is `Missing`: the
answer is a part of the whole then, and says so.
"""

import asyncio
from collections.abc import Callable, Collection
from enum import Enum
from typing import Final

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import EVERYTHING, Client, Selection
from gpu_control_plane.kube.errors import Forbidden, KubeError, NotFound
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.pools.explanation_reads import UNSCHEDULED
from gpu_control_plane.views.fleet import Fleet, Missing, asks_for_a_pool

_SETTLING_SECONDS: Final = 0.2
"""How long changes are gathered before they are shown: one approval changes a card, its node and its pool."""
_PAGE: Final = 2000
"""Objects in a page of a list: larger than a controller's, as a person waits for all of them."""


class Part(Enum):
    """A kind of object in a fleet."""

    CARDS = GPUDevice
    STATES = GPUNodeState
    POOLS = GPUPool
    NODES = Node
    WAITING = WaitingPod

    @property
    def kind(self) -> type[Object]:
        kind: type[Object] = self.value
        return kind


EVERY_PART: Final = frozenset(Part)


async def read_fleet(
    client: Client,
    parts: Collection[Part] = EVERY_PART,
    *,
    cards: Selection = EVERYTHING,
    namespace: str | None = None,
) -> Fleet:
    """These kinds, with the cards that `cards` selects, and the waiting pods of a namespace, or of all."""
    reads = {part: _read(client, part.kind, _selection(part, cards, namespace)) for part in Part if part in parts}
    found = dict(zip(reads, await asyncio.gather(*reads.values()), strict=True))
    return _fleet(found)


async def follow_fleet(
    client: Client,
    show: Callable[[Fleet], None],
    parts: Collection[Part] = EVERY_PART,
    *,
    cards: Selection = EVERYTHING,
    namespace: str | None = None,
) -> None:
    """Show the fleet now, and again after each change, until cancelled; changes that come together are shown once."""
    changed = asyncio.Event()
    caches = {
        part: Cache(part.kind, ApiSource(client, part.kind, _selection(part, cards, namespace)))
        for part in Part
        if part in parts
    }
    for cache in caches.values():
        cache.on_change(lambda _old, _new: changed.set())
    async with asyncio.TaskGroup() as tasks:
        for cache in caches.values():
            tasks.create_task(cache.run())
        await asyncio.gather(*(cache.synced_or_unavailable() for cache in caches.values()))
        while True:
            changed.clear()
            show(_fleet({part: _held(cache) for part, cache in caches.items()}))
            await changed.wait()
            await asyncio.sleep(_SETTLING_SECONDS)


def _selection(part: Part, cards: Selection, namespace: str | None) -> Selection:
    match part:
        case Part.CARDS:
            return cards
        case Part.WAITING:
            return Selection(namespace, fields=UNSCHEDULED.fields)
        case _:
            return EVERYTHING


async def _read(client: Client, kind: type[Object], selection: Selection) -> list[Object] | Missing:
    try:
        pages = client.pages(kind, selection, limit=_PAGE)
        return [item async for page in pages for item in page.items]
    except (Forbidden, NotFound) as error:
        return _missing(kind, error)


def _held(cache: Cache[Object]) -> list[Object] | Missing:
    if not cache.is_synced and cache.watch_error is not None:
        return _missing(cache.kind, cache.watch_error)
    return list(cache)


def _missing(kind: type[Object], error: KubeError) -> Missing:
    name = kind.resource.qualified_name
    if isinstance(error, NotFound):
        return Missing(kind=name, why=f"the cluster has no {name}: the product is not installed", installed=False)
    return Missing(kind=name, why=str(error))


def _fleet(found: dict[Part, list[Object] | Missing]) -> Fleet:
    missing = tuple(each for each in found.values() if isinstance(each, Missing))

    def of[T: Object](kind: type[T]) -> list[T]:
        items = found.get(Part(kind), [])
        return [] if isinstance(items, Missing) else [item for item in items if isinstance(item, kind)]

    pools = {pool.name: pool for pool in of(GPUPool)}
    return Fleet(
        cards={card.name: card for card in of(GPUDevice)},
        states={state.name: state for state in of(GPUNodeState)},
        pools=pools,
        nodes={node.name: node for node in of(Node)},
        waiting=[pod for pod in of(WaitingPod) if asks_for_a_pool(pod, pools)],
        missing=missing,
    )
