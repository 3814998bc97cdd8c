"""Carries out what `decide` and `status` say: one controller keyed by node, one by pool.

Every claim and every order carries the resourceVersion it was decided on. A claim is written before the order it
allows, so the process may die between any two writes and the next one goes on from what it finds.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

import msgspec

from gpu_control_plane.api.allocation import Allocation
from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool, PoolStatus
from gpu_control_plane.api.names import GROUP, Annotation
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NodeFeature, feature_name
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.finalizers import add_finalizer, remove_finalizer
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.objects import FieldManager, Key
from gpu_control_plane.kube.predicates import labels_changed, spec_changed
from gpu_control_plane.kube.rate_limit import RateLimit
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.signal import Signal
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.kube.watch import SLICE
from gpu_control_plane.pools.access import AccessIndexWriter
from gpu_control_plane.pools.accessible import access_conditions
from gpu_control_plane.pools.apply import (
    AssignmentsApplyConfiguration,
    DeviceApplyConfiguration,
    NodePoolsApplyConfiguration,
    PoolApplyConfiguration,
)
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.pools.decide import CardPlan, NodePlan, decide
from gpu_control_plane.pools.events import record_cards, record_node, record_pool
from gpu_control_plane.pools.explain.snapshot import PoolView, approvable_cards
from gpu_control_plane.pools.metrics import PoolMetrics, TroubleMetrics
from gpu_control_plane.pools.node_capacity import node_capacity
from gpu_control_plane.pools.pending_pods import PendingPods
from gpu_control_plane.pools.quota_controller import Quotas
from gpu_control_plane.pools.reservation_controller import PoolReservations
from gpu_control_plane.pools.selected_cards import CardTally
from gpu_control_plane.pools.snapshot import Settings, Snapshot
from gpu_control_plane.pools.status import pool_status
from gpu_control_plane.pools.taint_controller import NodeTaints
from gpu_control_plane.rules.device_selection import selects
from gpu_control_plane.rules.node_readiness import is_report_observed
from gpu_control_plane.rules.pool_validation import PoolFault, faults

FINALIZER = f"{GROUP}/pool"
MANAGER = "gpu-pools"

_NODE, _POOL, _APPROVED, _STATE = "node", "pool", "approved", "state"
_DEFAULTS = Settings()


def build(runtime: Runtime, settings: Settings = _DEFAULTS, *, now: Callable[[], datetime] = utc_now) -> None:
    """Add the controllers for pools to a process."""
    Pools(runtime, settings, now).start()


class _CountedPool(msgspec.Struct):
    """The capacity of a pool, and the nodes on which it may have changed since it was counted."""

    capacity: PoolCapacity = msgspec.field(default_factory=PoolCapacity)
    changed: set[str] = msgspec.field(default_factory=set)
    version: tuple[int, Allocation | None] = (0, None)
    complete: bool = False
    """Whether every node has been counted once."""


class Pools:
    """The controllers for pools, on the caches they share."""

    def __init__(self, runtime: Runtime, settings: Settings, now: Callable[[], datetime]) -> None:
        self._runtime = runtime
        self._settings = settings
        self._clock = now
        self._applier = runtime.applier(MANAGER)
        self._devices = runtime.cache(GPUDevice)
        self._states = runtime.cache(GPUNodeState)
        self._pools = runtime.cache(GPUPool)
        self._metrics = PoolMetrics(runtime.metrics.registry, self._pools)
        self._access = AccessIndexWriter(
            runtime, FieldManager(MANAGER), settings.namespace, pools=self._pools, states=self._states
        )
        self._nodes = runtime.cache(Node)
        self._features = runtime.cache(NodeFeature, Selection(namespace=settings.namespace))
        self._status_rate = RateLimit(settings.status_interval.total_seconds())
        self._counted: dict[str, _CountedPool] = {}
        self._known_faults: dict[str, PoolFault] | None = None
        self._quotas = Quotas(runtime, self._faults)
        self._reservations = PoolReservations(runtime, self._metrics, self._pools, settings.reservation_shown_after)
        self._selected = CardTally()
        self._selection_changed = Signal("pool-selection", interval=settings.selection_interval.total_seconds())

    def start(self) -> None:
        devices, pools = self._devices, self._pools
        devices.index(_NODE, lambda device: (device.spec.node_name,))
        devices.index(_POOL, _claimed_by)
        devices.index(_APPROVED, _approved_for)
        devices.index(_STATE, lambda device: (device.status.state or DeviceState.UNASSIGNED,))
        nodes = self._runtime.controller("pools-nodes", self._reconcile_node)
        nodes.watch(devices, lambda device: (Key(device.spec.node_name),))
        nodes.watch(self._states)
        nodes.watch(self._nodes, when=labels_changed)
        nodes.watch(pools, lambda _pool: [state.key for state in self._states], when=_orders_may_change)
        status = self._runtime.controller("pools-status", self._reconcile_pool)
        status.watch(pools).watch(self._selection_changed)
        status.watch(devices, lambda device: [Key(name) for name in (*_claimed_by(device), *_approved_for(device))])
        status.watch(self._states, lambda state: {Key(name) for name in self._pools_on(state.name)})
        self._quotas.start(status)
        self._access.start(status)
        self._reservations.start(status, nodes)
        self._runtime.on_lead(self._selected.clear)
        pools.on_change(self._pool_changed)
        devices.on_change(self._device_changed)
        self._states.on_change(self._state_changed)
        NodeTaints(self._runtime).start()
        TroubleMetrics(self._runtime.metrics.registry).follow(devices, pools)
        PendingPods(self._runtime, self._settings, self._view, self._clock).start()

    async def _reconcile_node(self, key: Key) -> None:
        state = self._states.at(key)
        plan = decide(self._snapshot(key.name, state))
        self._count_selected(key.name, plan if state is not None else None)
        written: list[CardPlan] = []
        try:
            await gather_all(self._write_card(card, written) for card in plan.cards)
        finally:
            record_cards(self._runtime.events, written, state)
        if state is not None and not state.deleting:
            await self._write_node(plan, state)
        self._metrics.cards(unassigned=self._devices.count(_STATE, DeviceState.UNASSIGNED))

    def _faults(self) -> dict[str, PoolFault]:
        """The pools that cannot be carried out, found anew when a pool has changed and not for every node."""
        if self._known_faults is None:
            self._known_faults = faults(self._pools)
        return self._known_faults

    def _pool_changed(self, _old: GPUPool | None, _new: GPUPool | None) -> None:
        self._known_faults = None

    def _count_selected(self, node: str, plan: NodePlan | None) -> None:
        """What the node means for the numbers of each pool; they are complete once every node has been decided on."""
        incomplete = len(self._selected) < len(self._states)
        changed = self._selected.put(node, plan.selected) if plan is not None else self._selected.forget(node)
        if len(self._selected) >= len(self._states):
            concerned = {pool.name for pool in self._pools} if incomplete else changed
            if concerned:
                self._selection_changed.fire(*(Key(name) for name in sorted(concerned)))

    def _snapshot(self, name: str, state: GPUNodeState | None) -> Snapshot:
        node = self._nodes.get(name)
        pools = {pool.name: pool for pool in self._pools}
        report = self._features.get(feature_name(name), self._settings.namespace)
        devices = tuple(device for device in self._devices.by_index(_NODE, name) if not device.deleting)
        return Snapshot(
            node=name,
            labels=node.metadata.labels if node else None,
            state=state,
            devices=devices,
            pools=pools,
            faults=self._faults(),
            reserved=self._reservations.shown(name, devices, state),
            report_observed=state is None or is_report_observed(state.status, report, self._devices.get),
            now=self._clock().replace(microsecond=0),
        )

    async def _write_card(self, plan: CardPlan, changed: list[CardPlan]) -> None:
        device = plan.device
        try:
            if plan.approve or plan.withdraw:
                device = await self._runtime.client.patch(
                    GPUDevice,
                    device.name,
                    {"metadata": {"annotations": {Annotation.ASSIGNMENT: plan.approve, Annotation.APPROVED_BY: None}}},
                    resource_version=device.metadata.resource_version,
                )
            written = await self._applier.apply(
                GPUDevice,
                device.name,
                DeviceApplyConfiguration.of(plan),
                device,
                subresource="status",
                # A claim begins or ends, or a test is recorded: that must happen once.
                guarded=bool(plan.change or plan.tested or plan.divided),
            )
            if plan.take_reason:
                await self._runtime.client.patch(
                    GPUDevice,
                    device.name,
                    {"metadata": {"annotations": {Annotation.REASON: None}}},
                    resource_version=written.metadata.resource_version,
                )
        except NotFound:
            return  # it has been deleted; the cache is about to show that
        if written is not plan.device:
            changed.append(plan)

    async def _write_node(self, plan: NodePlan, state: GPUNodeState) -> None:
        """The assignments first, since pods wait for them; what the node's status says about pools follows.

        Before them the index of access: a resource that is offered has to be guarded.
        """
        if plan.assignments:
            await self._access.ensure()
        orders = AssignmentsApplyConfiguration.of(plan.assignments)
        written = await self._applier.apply(GPUNodeState, state.name, orders, state, guarded=True)
        if plan.complete:
            await self._applier.apply(
                GPUNodeState, state.name, NodePoolsApplyConfiguration.of(plan.pools), written, subresource="status"
            )
            record_node(self._runtime.events, state, plan.pools)

    async def _reconcile_pool(self, key: Key) -> Requeue | None:
        pool = self._pools.at(key)
        if pool is None:
            self._status_rate.forget(key)
            self._counted.pop(key.name, None)
            self._reservations.forget(key.name)
            return None
        if pool.deleting:
            await self._release(pool)
        else:
            pool = await add_finalizer(self._runtime.client, pool, FINALIZER)
        if later := self._status_rate.wait(key):
            return later
        capacity = await self._count(pool)
        known, now = len(self._selected) >= len(self._states), self._clock().replace(microsecond=0)
        self._reservations.update(pool, capacity, now)
        overfull = pool.name in self._access.overfull
        access = access_conditions(pool, overfull=overfull, guarded=self._access.guarded, now=now)
        status = pool_status(
            pool,
            capacity,
            self._faults().get(pool.name),
            self._selected.of(pool.name) if known else pool.status.cards,
            now,
            also=(*access, *self._quotas.conditions(pool, now)),
        )
        self._metrics.capacity(pool.name, status.capacity)
        try:
            written = await self._applier.apply(
                GPUPool,
                pool.name,
                PoolApplyConfiguration(status),
                pool,
                subresource="status",
                # Nodes are ordered by it: it must follow from the spec that is there.
                guarded=status.allocation != pool.status.allocation,
            )
        except NotFound:
            return None  # the last finalizer is gone, and so is the pool
        if written is not pool:
            self._status_rate.mark(key)
            record_pool(self._runtime.events, pool, status)
        if Annotation.CONFIRM_LAYOUT in pool.metadata.annotations:
            await self._take_confirmation(written)
        return self._next_look(pool, status, now)

    def _next_look(self, pool: GPUPool, status: PoolStatus, now: datetime) -> Requeue | None:
        """When time alone changes something."""
        overdue = status.maintenance.deadline if status.maintenance is not None else None
        moments = (overdue, self._reservations.next_change(pool, now))
        waits = [(moment - now).total_seconds() for moment in moments if moment is not None and moment > now]
        return Requeue(after=min(waits)) if waits else None

    async def _take_confirmation(self, pool: GPUPool) -> None:
        """The status has been written with it. While a node is still not as ordered there is nothing to confirm."""
        await self._runtime.client.patch(
            GPUPool,
            pool.name,
            {"metadata": {"annotations": {Annotation.CONFIRM_LAYOUT: None}}},
            resource_version=pool.metadata.resource_version,
        )

    async def _count(self, pool: GPUPool) -> PoolCapacity:
        """The capacity of the pool, counted again for the nodes where something has changed."""
        counted = self._counted.setdefault(pool.name, _CountedPool())
        if counted.version != (pool.metadata.generation, pool.status.allocation):
            # Another spec may mean another resource name, and every node counts differently then.
            counted.version = (pool.metadata.generation, pool.status.allocation)
            counted.changed |= {card.spec.node_name for card in self._devices.by_index(_POOL, pool.name)}
        for number, node in enumerate(sorted(counted.changed), start=1):
            counted.changed.discard(node)
            held = [card for card in self._devices.by_index(_NODE, node) if pool.name in _claimed_by(card)]
            counted.capacity.put(node, node_capacity(pool, node, held, self._states.get(node)))
            if number % SLICE == 0:
                await asyncio.sleep(0)
        counted.complete = True
        return counted.capacity

    def _device_changed(self, old: GPUDevice | None, new: GPUDevice | None) -> None:
        for device in (old, new):
            if device is not None:
                self._mark_changed(_claimed_by(device), device.spec.node_name)

    def _state_changed(self, old: GPUNodeState | None, new: GPUNodeState | None) -> None:
        state = new or old
        if state is not None:
            self._mark_changed(self._pools_on(state.name), state.name)

    def _pools_on(self, node: str) -> set[str]:
        """The pools that have cards in the node, ordered or not."""
        return {name for card in self._devices.by_index(_NODE, node) for name in _claimed_by(card)}

    def _mark_changed(self, pools: Iterable[str], node: str) -> None:
        for name in pools:
            self._counted.setdefault(name, _CountedPool()).changed.add(node)

    async def _release(self, pool: GPUPool) -> None:
        """Take the finalizer off once no card is claimed by the pool or approved for it any more."""
        if not self._devices.by_index(_POOL, pool.name) and not self._devices.by_index(_APPROVED, pool.name):
            await remove_finalizer(self._runtime.client, pool, FINALIZER)

    def _view(self, pool: GPUPool) -> PoolView | None:
        """The pool as an explanation needs it; None until it and the cards that it selects have been counted."""
        counted = self._counted.get(pool.name)
        if counted is None or not counted.complete or len(self._selected) < len(self._states):
            return None
        return PoolView(
            pool=pool,
            capacity=counted.capacity,
            waiting_on=partial(self._selected.waiting_on, pool.name),
            approvable=partial(self._approvable, pool),
        )

    def _approvable(self, pool: GPUPool, name: str) -> list[str]:
        """Cards of a node that would join the pool if a person approved them."""
        node, state = self._nodes.get(name), self._states.get(name)
        if node is None or state is None:
            return []
        cards = approvable_cards(state, self._devices.get)
        return [card.name for card in cards if selects(pool, card, node.metadata.labels)]


def _orders_may_change(old: GPUPool | None, new: GPUPool | None) -> bool:
    """Whether nodes have to be decided on again: the rest of a pool's status changes all the time."""
    if old is None and new is not None:
        return new.status.allocation is not None  # A new pool gives no orders before.
    if old is None or new is None or spec_changed(old, new):
        return True
    return (old.status.allocation, _turn(old)) != (new.status.allocation, _turn(new))


def _turn(pool: GPUPool) -> str | None:
    return pool.status.maintenance.node if pool.status.maintenance else None


def _claimed_by(device: GPUDevice) -> tuple[str, ...]:
    return (device.status.pool_ref.name,) if device.status.pool_ref else ()


def _approved_for(device: GPUDevice) -> tuple[str, ...]:
    approved = device.metadata.annotations.get(Annotation.ASSIGNMENT)
    return (approved,) if approved else ()
