"""Pods that hold cards, and pods that wait for one.

Who holds a card is what the agents report on it, so no Pod is listed for it; a pod that waits is explained by the
decision that its Event and `kubectl gpu explain pod` come from.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import partial

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.pod import Pod, WaitingPod
from gpu_control_plane.pools.explain.cluster import ClusterSnapshot
from gpu_control_plane.pools.explain.explanation import Explanation
from gpu_control_plane.pools.explain.pod import explain_pod
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.loads import Load, load_of


class Hold(StrEnum):
    """Whether a pod has what it asks for."""

    HOLDS = "Holds"
    WAITS = "Waits"


class PodRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that holds units of cards, or waits for some. Fields are added, never renamed or removed."""

    namespace: str
    name: str
    status: Hold
    resources: dict[str, int]
    """Units that it holds or asks for."""
    pools: tuple[str, ...]
    node: str | None
    cards: tuple[str, ...]
    load: Load | None
    """None of a pod that waits."""
    idle_since: datetime | None
    """Since when at least all its cards have done nothing."""
    reason: str | None
    """Why it waits, in one word; None where the reader may not see enough to tell."""
    message: str | None
    created: datetime | None
    """None where only agents report the pod."""

    @property
    def units(self) -> int:
        return sum(self.resources.values())


def pod_rows(fleet: Fleet, *, namespace: str | None = None) -> list[PodRow]:
    """The pods by namespace and name, those that wait last; of one namespace or of all."""
    rows = [*_holding(fleet, namespace), *map(partial(_placed, fleet), fleet.placed), *_waiting(fleet, namespace)]
    return sorted(rows, key=lambda row: (row.status, row.namespace, row.name))


def explain_waiting(fleet: Fleet) -> dict[tuple[str, str], Explanation | None]:
    """Why each pod of the fleet waits, by namespace and name; None where it asks for no card of a pool.

    Empty where the reader may not see cards and nodes: an explanation without them would be wrong.
    """
    if any(fleet.lacks(kind) for kind in ("gpudevices", "gpunodestates", "gpupools", "nodes")):
        return {}
    cluster = _cluster(fleet)
    return {(pod.metadata.namespace or "", pod.name): explain_pod(cluster.pod(pod)) for pod in fleet.waiting}


def explain_one(fleet: Fleet, pod: WaitingPod) -> Explanation | None:
    """Why this pod waits, for a reader who sees all of the fleet; None where it asks for no card of a pool."""
    return explain_pod(_cluster(fleet).pod(pod))


def _cluster(fleet: Fleet) -> ClusterSnapshot:
    return ClusterSnapshot(
        pools=fleet.pools.values(), cards=fleet.cards, states=fleet.states, nodes=fleet.nodes, waiting=fleet.waiting
    )


def _holding(fleet: Fleet, namespace: str | None) -> list[PodRow]:
    cards: dict[tuple[str, str], dict[str, GPUDevice]] = {}
    units: dict[tuple[str, str], Counter[str]] = {}
    for card in fleet.cards.values():
        for user in card.status.used_by:
            if namespace in (None, user.namespace):
                key = user.namespace, user.pod
                cards.setdefault(key, {})[card.name] = card
                units.setdefault(key, Counter())[user.resource] += user.units
    return [_holder(key, held, units[key]) for key, held in cards.items()]


def _holder(key: tuple[str, str], cards: Mapping[str, GPUDevice], units: Mapping[str, int]) -> PodRow:
    load = _load_of_all(cards)
    readings = [card.status.telemetry.at for card in cards.values() if card.status.telemetry is not None]
    return PodRow(
        namespace=key[0],
        name=key[1],
        status=Hold.HOLDS,
        resources=dict(sorted(units.items())),
        pools=tuple(sorted({card.status.pool_ref.name for card in cards.values() if card.status.pool_ref is not None})),
        node=next(iter(cards.values())).spec.node_name,
        cards=tuple(sorted(cards)),
        load=load,
        idle_since=max(readings) if load is Load.HELD_IDLE and readings else None,
        reason=None,
        message=None,
        created=None,
    )


def _placed(fleet: Fleet, pod: Pod) -> PodRow:
    """A pod by what it asks for: which cards it got, and whether they compute, its reader may not see."""
    asked = pod.extended_resources
    return PodRow(
        namespace=pod.metadata.namespace or "",
        name=pod.name,
        status=Hold.HOLDS,
        resources=asked,
        pools=_pools_of(fleet, asked),
        node=pod.spec.node_name,
        cards=(),
        load=Load.HELD,
        idle_since=None,
        reason=None,
        message=None,
        created=pod.metadata.creation_timestamp,
    )


def _pools_of(fleet: Fleet, asked: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(name for name, pool in sorted(fleet.pools.items()) if not asked.keys().isdisjoint(pool.resource_names))


def _load_of_all(cards: Mapping[str, GPUDevice]) -> Load:
    """A pod computes if one of its cards does, and is idle if all of them are."""
    loads = {load_of(card) for card in cards.values()}
    for load in (Load.COMPUTING, Load.HELD, Load.HELD_IDLE):
        if load in loads:
            return load
    return Load.OUT_OF_SERVICE


def _waiting(fleet: Fleet, namespace: str | None) -> list[PodRow]:
    explained = explain_waiting(fleet) if fleet.waiting else {}
    return [
        _waiter(pod, fleet, explained.get((pod.metadata.namespace or "", pod.name)))
        for pod in fleet.waiting
        if namespace in (None, pod.metadata.namespace)
    ]


def _waiter(pod: WaitingPod, fleet: Fleet, found: Explanation | None) -> PodRow:
    asked = pod.extended_resources
    return PodRow(
        namespace=pod.metadata.namespace or "",
        name=pod.name,
        status=Hold.WAITS,
        resources=asked,
        pools=_pools_of(fleet, asked),
        node=None,
        cards=(),
        load=None,
        idle_since=None,
        reason=found.cause if found is not None else None,
        message=found.sentence if found is not None else None,
        created=pod.metadata.creation_timestamp,
    )
