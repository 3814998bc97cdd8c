"""The fleet, read from the API server with the rights of whoever asks: for commands, which have no caches.

Only the kinds that are asked for are read, all at once. What may not be read, or is not installed, is `Missing`: the
answer is a part of the whole then, and says so.
"""

import asyncio
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import UNSCHEDULED_FIELDS, Pod, WaitingPod
from gpu_control_plane.kube.client import EVERYTHING, Client, Selection
from gpu_control_plane.kube.errors import Forbidden, KubeError, NotFound
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.views.fleet import Fleet, Missing, asks_for_a_pool

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
    printed: bool = False,
) -> Fleet:
    """These kinds, with the cards that `cards` selects, and the waiting pods of a namespace, or of all. With `printed`
    cards are there as far as a table shows them, which takes a third of the time."""
    reads = {
        part: _read_printed(client, cards)
        if printed and part is Part.CARDS
        else read_kind(client, part.kind, selection_of(part, cards, namespace))
        for part in Part
        if part in parts
    }
    found = dict(zip(reads, await asyncio.gather(*reads.values()), strict=True))
    fleet = fleet_of(found)
    if namespace is None or Part.WAITING not in parts or not fleet.lacks(GPUDevice.resource.plural):
        return fleet
    return msgspec.structs.replace(fleet, placed=await _read_placed(client, namespace, fleet.pools))


def selection_of(part: Part, cards: Selection, namespace: str | None) -> Selection:
    match part:
        case Part.CARDS:
            return cards
        case Part.WAITING:
            return Selection(namespace, fields=UNSCHEDULED_FIELDS)
        case _:
            return EVERYTHING


async def read_kind(client: Client, kind: type[Object], selection: Selection) -> list[Object] | Missing:
    try:
        pages = client.pages(kind, selection, limit=_PAGE)
        return [item async for page in pages for item in page.items]
    except (Forbidden, NotFound) as error:
        return missing_of(kind, error)


async def _read_placed(client: Client, namespace: str, pools: Mapping[str, GPUPool]) -> list[Pod]:
    """The pods of one namespace that have a node and asked for cards, instead of the users of cards."""
    found = await read_kind(client, Pod, Selection(namespace, fields="spec.nodeName!="))
    pods = [] if isinstance(found, Missing) else [each for each in found if isinstance(each, Pod)]
    return [pod for pod in pods if pod.active and asks_for_a_pool(pod, pools)]


async def _read_printed(client: Client, selection: Selection) -> list[Object] | Missing:
    from gpu_control_plane.views.printed_cards import cards_of  # noqa: PLC0415 - only tables need it

    try:
        found = cards_of(await client.printed(GPUDevice, selection))
    except (Forbidden, NotFound) as error:
        return missing_of(GPUDevice, error)
    return [*found] if found is not None else await read_kind(client, GPUDevice, selection)


def missing_of(kind: type[Object], error: KubeError) -> Missing:
    name = kind.resource.qualified_name
    if isinstance(error, NotFound):
        return Missing(kind=name, why=f"the cluster has no {name}: the product is not installed", installed=False)
    return Missing(kind=name, why=str(error).removeprefix(f"{name} is forbidden: "))


def fleet_of(found: dict[Part, list[Object] | Missing]) -> Fleet:
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
