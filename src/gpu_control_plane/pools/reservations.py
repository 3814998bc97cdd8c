"""Which free units are promised to pods that wait. Pure: nothing is stored, everything follows from what is there.

A pod's promise begins when it is created and there is a node with its units free, goes by age among pods, and ends
when the pod has a node, is gone, or has waited for the pool's `reservationTTL`. So a creation that was refused after
all leaves nothing behind, no restart loses anything, and two controllers come to the same result. It is bookkeeping:
the scheduler gives the units to whom it likes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice, Reservation
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube.objects import Key

type UnitsByResource = Mapping[str, int]

_GATED: Final = "SchedulingGated"
_MAX_TOKEN: Final = 63


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod without a node asks of one pool."""

    key: Key
    token: str
    created: datetime
    units: UnitsByResource


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """Units on one node that are reserved for a pod."""

    pod: Demand
    node: str
    expires_at: datetime


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    """What is reserved of a pool."""

    promises: tuple[Promise, ...] = ()
    expired: tuple[Demand, ...] = ()
    """Pods whose time is over although a node has their units free: something else keeps them from starting."""

    @property
    def units(self) -> dict[str, int]:
        """By resource."""
        total: dict[str, int] = defaultdict(int)
        for promise in self.promises:
            for resource, units in promise.pod.units.items():
                total[resource] += units
        return dict(total)

    @property
    def next_expiry(self) -> datetime | None:
        return min((promise.expires_at for promise in self.promises), default=None)


NOTHING: Final = Reservations()


def demands(pods: Iterable[Pod], pool: GPUPool) -> Iterator[Demand]:
    """Those of these unscheduled pods that could be given a node and ask for the pool."""
    for pod in pods:
        scheduled = pod.condition("PodScheduled")
        if not pod.active or (scheduled is not None and scheduled.reason == _GATED):
            continue
        created = pod.metadata.creation_timestamp
        units = {name: count for name in pool.resource_names if (count := pod.limit_of(name)) > 0}
        if units and created is not None:
            # Whoever creates a pod may have written it: it only names the promise.
            token = pod.metadata.annotations.get(Annotation.RESERVATION, "")
            known = token if 0 < len(token) <= _MAX_TOKEN else pod.metadata.uid
            yield Demand(key=pod.key, token=known, created=created, units=units)


def reserve(
    pods: Iterable[Demand],
    free: Mapping[str, UnitsByResource],
    *,
    ttl: timedelta,
    now: datetime,
    before: Reservations = NOTHING,
) -> Reservations:
    """Promise free units, by node and resource, to the pods, the oldest first.

    A pod gets all its units on one node or none. It keeps the node it had `before` while that has room: a promise that
    lasts is shown on cards, which should not change without need.
    """
    left = _FreeUnits(free)
    nodes = {promise.pod.key: promise.node for promise in before.promises}
    promises: list[Promise] = []
    late: list[Demand] = []
    for pod in sorted(pods, key=lambda pod: (pod.created, pod.key)):
        if pod.created + ttl <= now:
            late.append(pod)
        elif (node := left.node_for(pod.units, nodes.get(pod.key))) is not None:
            left.take(node, pod.units)
            promises.append(Promise(pod=pod, node=node, expires_at=pod.created + ttl))
        if left.exhausted:
            break
    expired = tuple(pod for pod in late if left.node_for(pod.units) is not None)
    return Reservations(promises=tuple(promises), expired=expired)


def reserved_cards(
    promises: Iterable[Promise], cards: Iterable[GPUDevice], units: Mapping[str, UnitsByResource]
) -> dict[str, Reservation]:
    """On which of the unused cards of one node these promises are shown. `units` are what each card gives.

    A card shows one promise, and one that it shows already stays where it is. Shared cards that a pod uses show none.
    """
    unused = {card.name: card.status.reservation for card in cards if not card.status.used_by}
    shown: dict[str, Reservation] = {}
    for promise in promises:
        wanted = Reservation(token=promise.pod.token, holder=str(promise.pod.key), expires_at=promise.expires_at)
        missing = dict(promise.pod.units)
        for name in sorted(unused, key=lambda name: (unused[name] != wanted, name)):
            given = units.get(name, {})
            if name in shown or not any(missing.get(resource, 0) > 0 for resource in given):
                continue
            shown[name] = wanted
            missing = {resource: count - given.get(resource, 0) for resource, count in missing.items()}
    return shown


class _FreeUnits:
    """What is left on each node. Nodes are kept by how much they have, so that a burst of pods costs little."""

    def __init__(self, free: Mapping[str, UnitsByResource]) -> None:
        self._left = {node: {name: count for name, count in free[node].items() if count > 0} for node in sorted(free)}
        self._by_count: dict[str, dict[int, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
        self._total = 0
        for node, units in self._left.items():
            self._total += sum(units.values())
            for resource, count in units.items():
                self._by_count[resource][count][node] = None

    @property
    def exhausted(self) -> bool:
        return self._total == 0

    def node_for(self, wanted: UnitsByResource, preferred: str | None = None) -> str | None:
        """The node on which the fewest units are left over."""
        if preferred is not None and self._fits(preferred, wanted):
            return preferred
        resource = min(wanted)
        counts = self._by_count.get(resource, {})
        for count in sorted(counts):
            if count < wanted[resource]:
                continue
            for node in counts[count]:
                if self._fits(node, wanted):
                    return node
        return None

    def take(self, node: str, wanted: UnitsByResource) -> None:
        for resource, units in wanted.items():
            count = self._left[node][resource]
            self._total -= units
            self._left[node][resource] = count - units
            del self._by_count[resource][count][node]
            if count > units:
                self._by_count[resource][count - units][node] = None

    def _fits(self, node: str, wanted: UnitsByResource) -> bool:
        left = self._left.get(node, {})
        return all(left.get(resource, 0) >= units for resource, units in wanted.items())
