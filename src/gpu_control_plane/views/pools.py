"""Pools as rows: what each has, what is free, and how much of it a namespace can get now."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import Capacity, GPUPool, PoolPhase
from gpu_control_plane.api.names import PoolCondition
from gpu_control_plane.api.namespace import ResourceQuota
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.quantities import parse_quantity
from gpu_control_plane.pools.quotas import desired_limits
from gpu_control_plane.rules.pool_access import PodCreation, admits
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.loads import Load, load_of

_REQUESTS = "requests."


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace that wants units, as far as its reader may see it."""

    namespace: str
    labels: Mapping[str, str] = {}
    quotas: tuple[ResourceQuota, ...] | None = None
    """All of its ResourceQuotas; None where they could not be read."""
    may_use: Callable[[str], bool] = lambda _pool: False
    """Whether the reader has the RBAC verb `use` on a pool."""


class Obtainable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a namespace can get of a resource now."""

    units: int
    """Free, and within what quotas leave."""
    quota_left: int | None
    """None where no quota is set, or none could be read."""
    access: bool
    """Whether spec.access or the RBAC verb `use` admits pods of the namespace; a pod's service account, or who makes
    it, may be admitted all the same."""


class ResourceRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The units of one resource of a pool."""

    name: str
    total: int
    used: int
    reserved: int
    free: int
    faulted: int
    obtainable: Obtainable | None
    """None where no namespace was asked about."""


class PoolRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pool. Fields are added, never renamed or removed."""

    name: str
    phase: PoolPhase | None
    allocation: str
    message: str | None
    """Why it is not ready, or what is wrong."""
    total: int
    used: int
    reserved: int
    free: int
    faulted: int
    computing: int | None
    """Cards that compute; None where cards were not read."""
    held_idle: int | None
    """Cards that a pod has and that do nothing."""
    waiting_cards: dict[str, int]
    """Cards that the pool selects and does not have, by reason."""
    nodes: int
    nodes_ready: int
    resources: tuple[ResourceRow, ...]
    obtainable: int | None
    """Units of all its resources that the namespace can get now."""
    created: datetime | None


def pool_rows(fleet: Fleet, tenant: Tenant | None = None, *, loads: bool = True) -> list[PoolRow]:
    """The pools by name; with a `tenant`, what that namespace can get. Without `loads` no card was read."""
    by_pool = pool_loads(fleet.cards.values()) if loads and not fleet.lacks("gpudevices") else None
    return [
        pool_row(pool, by_pool.get(name, Counter()) if by_pool is not None else None, tenant)
        for name, pool in sorted(fleet.pools.items())
    ]


def pool_loads(cards: Iterable[GPUDevice]) -> dict[str, Counter[Load]]:
    """How many cards of each pool do what."""
    counts: dict[str, Counter[Load]] = defaultdict(Counter)
    for card in cards:
        if card.status.pool_ref is not None:
            counts[card.status.pool_ref.name][load_of(card)] += 1
    return counts


def pool_row(pool: GPUPool, loads: Mapping[Load, int] | None, tenant: Tenant | None) -> PoolRow:
    status = pool.status
    units, nodes = status.units, status.nodes
    resources = tuple(_resource(pool, capacity, tenant) for capacity in status.capacity)
    return PoolRow(
        name=pool.name,
        phase=status.phase,
        allocation=str(pool.allocation),
        message=_message(pool),
        total=units.total if units is not None else 0,
        used=units.used if units is not None else 0,
        reserved=units.reserved if units is not None else 0,
        free=units.available if units is not None else 0,
        faulted=units.faulted if units is not None else 0,
        computing=loads.get(Load.COMPUTING, 0) if loads is not None else None,
        held_idle=loads.get(Load.HELD_IDLE, 0) if loads is not None else None,
        waiting_cards={each.reason: each.cards for each in status.cards.waiting} if status.cards is not None else {},
        nodes=nodes.total if nodes is not None else 0,
        nodes_ready=nodes.ready if nodes is not None else 0,
        resources=resources,
        obtainable=sum(each.obtainable.units for each in resources if each.obtainable is not None)
        if tenant is not None
        else None,
        created=pool.metadata.creation_timestamp,
    )


def _resource(pool: GPUPool, capacity: Capacity, tenant: Tenant | None) -> ResourceRow:
    return ResourceRow(
        name=capacity.name,
        total=capacity.total,
        used=capacity.used,
        reserved=capacity.reserved,
        free=capacity.available,
        faulted=capacity.faulted,
        obtainable=_obtainable(pool, capacity, tenant) if tenant is not None else None,
    )


def _obtainable(pool: GPUPool, capacity: Capacity, tenant: Tenant) -> Obtainable:
    creation = PodCreation(namespace=tenant.namespace, namespace_labels=tenant.labels)
    access = tenant.may_use(pool.name) or admits(pool.spec.access, creation)
    left = _quota_left(pool, capacity.name, tenant)
    open_ = access and pool.status.phase is PoolPhase.READY
    free = capacity.available if left is None else min(capacity.available, left)
    return Obtainable(units=free if open_ else 0, quota_left=left, access=access)


def _quota_left(pool: GPUPool, resource: str, tenant: Tenant) -> int | None:
    """What all quotas of the namespace leave; where they cannot be read, what the pool's own would at most."""
    key = f"{_REQUESTS}{resource}"
    if tenant.quotas is None:
        limit = (desired_limits(pool, tenant.namespace) or {}).get(key)
        return int(limit) if limit is not None else None
    left = [
        parse_quantity(quota.spec.hard[key]) - parse_quantity(quota.status.used.get(key, "0"))
        for quota in tenant.quotas
        if key in quota.spec.hard
    ]
    return max(int(min(left)), 0) if left else None


def _message(pool: GPUPool) -> str | None:
    """The first condition that keeps the pool from being used."""
    for kind in (PoolCondition.CONFIGURED, PoolCondition.READY, PoolCondition.ACCESSIBLE, PoolCondition.QUOTAS_HOLD):
        said = find(pool.status.conditions, kind)
        if said is not None and said.status == "False":
            return said.message or said.reason
    return None
