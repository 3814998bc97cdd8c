"""The fleet, read from the API server with the rights of whoever asks: for commands, which have no caches.

Only the kinds that are asked for are read, all at once. What may not be read, or is not installed, is `Missing`: the
answer is a part of the whole then, and says so.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import USE
from gpu_control_plane.api.namespace import Namespace, ResourceQuota
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import EVERYTHING, Client, Selection
from gpu_control_plane.kube.errors import Forbidden, KubeError, NotFound
from gpu_control_plane.kube.objects import Object, Resource
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.pools.explanation_reads import UNSCHEDULED
from gpu_control_plane.views.fleet import Fleet, Missing, asks_for_a_pool
from gpu_control_plane.views.pools import Tenant

_SETTLING_SECONDS: Final = 0.2
"""How long changes are gathered before they are shown: one approval changes a card, its node and its pool."""
_PAGE: Final = 2000
"""Objects in a page of a list: larger than a controller's, as a person waits for all of them."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What somebody may do."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()

    def grants(self, resource: Resource, verb: str) -> bool:
        """Whether it grants the verb on some objects of the resource."""
        wanted = ((verb, self.verbs), (resource.group, self.api_groups), (resource.plural, self.resources))
        return all(not {"*", name}.isdisjoint(granted) for name, granted in wanted)


class RulesReviewStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    resource_rules: tuple[Rule, ...] = ()


class RulesReview(Object, frozen=True):
    """The question what the asker may do in a namespace, and its answer."""

    resource: ClassVar[Resource] = Resource(
        "authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False
    )

    status: RulesReviewStatus = RulesReviewStatus()


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


async def read_tenant(client: Client, namespace: str) -> tuple[Tenant, tuple[Missing, ...]]:
    """A namespace as its reader may see it: its quotas, and the pools that the reader has the verb `use` on."""
    quotas, rules, labels = await asyncio.gather(
        _read(client, ResourceQuota, Selection(namespace)), _may_use(client, namespace), _labels(client, namespace)
    )
    missing = (quotas,) if isinstance(quotas, Missing) else ()
    held = None if isinstance(quotas, Missing) else tuple(each for each in quotas if isinstance(each, ResourceQuota))
    return Tenant(namespace=namespace, labels=labels, quotas=held, may_use=rules), missing


async def _may_use(client: Client, namespace: str) -> Callable[[str], bool]:
    review = await client.create(RulesReview, {"spec": {"namespace": namespace}})
    rules = [rule for rule in review.status.resource_rules if rule.grants(GPUPool.resource, USE)]
    return lambda pool: any(not rule.resource_names or pool in rule.resource_names for rule in rules)


async def _labels(client: Client, namespace: str) -> Mapping[str, str]:
    """The labels of the namespace, by which a pool may admit it; a tenant may not read them."""
    try:
        return (await client.get(Namespace, namespace)).metadata.labels
    except (Forbidden, NotFound):
        return {}


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
