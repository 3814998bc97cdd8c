"""Keeps what is reserved of each pool: in memory alone, since it follows from the pods that wait and the free units."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from gpu_control_plane.api.gpudevice import GPUDevice, Reservation
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.pod import Pod, WaitingPod
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.controller import Controller
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.signal import Signal
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.pools.events import record_expired
from gpu_control_plane.pools.explanation_reads import UNSCHEDULED
from gpu_control_plane.pools.metrics import PoolMetrics
from gpu_control_plane.pools.reservations import NOTHING, Promise, Reservations, demands, reserve, reserved_cards
from gpu_control_plane.pools.resource_index import RESOURCE, index_resources
from gpu_control_plane.pools.snapshot import claim_of


class PoolReservations:
    """The reservations of all pools."""

    def __init__(
        self,
        runtime: Runtime,
        metrics: PoolMetrics,
        pools: Cache[GPUPool],
        shown_after: timedelta,
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._pools = pools
        self._unscheduled = runtime.cache(WaitingPod, UNSCHEDULED)
        self._shown_after = shown_after
        self._made: dict[str, Reservations] = {}
        self._lasting: dict[str, dict[str, tuple[Promise, ...]]] = {}
        """By pool and node, those that cards show."""
        self._shown_changed = Signal("pool-reservations")

    def start(self, status: Controller, nodes: Controller) -> None:
        """Begin. `status` writes the status of pools and calls `update`; `nodes` writes cards and calls `shown`.

        A pod that the scheduler has not tried yet wakes nobody: most have a node a moment later.
        """
        index_resources(self._pools, self._unscheduled)
        status.watch(
            self._unscheduled, self._pools_of, when=lambda _old, new: new is None or new.deleting or new.unschedulable
        )
        nodes.watch(self._shown_changed)
        self._runtime.on_lead(self._clear)

    def update(self, pool: GPUPool, capacity: PoolCapacity, now: datetime) -> None:
        """Reserve anew, and have `capacity` count it."""
        asking = {pod.key: pod for name in pool.resource_names for pod in self._unscheduled.by_index(RESOURCE, name)}
        before = self._made.get(pool.name, NOTHING)
        made = NOTHING
        if asking:
            ttl = pool.spec.scheduling.reservation_time
            made = reserve(demands(asking.values(), pool), capacity.free, ttl=ttl, now=now, before=before)
        capacity.reserved = made.units
        self._made[pool.name] = made
        self._metrics.reservations(pool.name, expired=len(made.expired))
        self._metrics.reserved(sum(sum(each.units.values()) for each in self._made.values()))
        known = {pod.key for pod in before.expired}
        for pod in made.expired:
            if pod.key not in known:
                record_expired(self._runtime.events, pool, asking[pod.key])
        self._show(pool.name, made, now)

    def shown(self, node: str, cards: Iterable[GPUDevice], state: GPUNodeState | None) -> dict[str, Reservation]:
        """What cards of a node show, by card. Of a pool that was not looked at yet, they go on showing what they do."""
        by_pool: dict[str, list[GPUDevice]] = defaultdict(list)
        for card in cards:
            if (pool := claim_of(card)) is not None:
                by_pool[pool].append(card)
        orders = state.spec.assignments if state is not None else ()
        units = {order.inventory_id: {each.name: each.units for each in order.resources} for order in orders}
        found: dict[str, Reservation] = {}
        for pool, held in by_pool.items():
            if pool in self._made:
                found |= reserved_cards(self._lasting.get(pool, {}).get(node, ()), held, units)
            else:
                found |= {card.name: card.status.reservation for card in held if card.status.reservation is not None}
        return found

    def next_change(self, pool: GPUPool, now: datetime) -> datetime | None:
        """When time alone changes something."""
        made = self._made.get(pool.name, NOTHING)
        shown = (promise.pod.created + self._shown_after for promise in made.promises)
        moments = [moment for moment in (made.next_expiry, *shown) if moment is not None and moment > now]
        return min(moments, default=None)

    def forget(self, pool: str) -> None:
        self._made.pop(pool, None)
        self._lasting.pop(pool, None)

    def _clear(self) -> None:
        self._made.clear()
        self._lasting.clear()

    def _show(self, pool: str, made: Reservations, now: datetime) -> None:
        lasting: dict[str, tuple[Promise, ...]] = {}
        for promise in made.promises:
            if promise.pod.created + self._shown_after <= now:
                lasting[promise.node] = (*lasting.get(promise.node, ()), promise)
        before: Mapping[str, tuple[Promise, ...]] = self._lasting.get(pool, {})
        self._lasting[pool] = lasting
        changed = sorted(node for node in before.keys() | lasting.keys() if before.get(node) != lasting.get(node))
        if changed:
            self._shown_changed.fire(*(Key(node) for node in changed))

    def _pools_of(self, pod: Pod) -> Iterable[Key]:
        return {pool.key for name in pod.extended_resource_names for pool in self._pools.by_index(RESOURCE, name)}
