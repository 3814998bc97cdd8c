"""How a pool gets from one allocation to another without touching a running pod. Pure.

`status.allocation` is the one that nodes are ordered to carry out. While `spec.allocation` differs from it the pool is
in maintenance:

- `Pool`: no card of the pool is ordered anywhere, so nothing new can land. When no unit is in use or on offer any more,
  the status takes the allocation of the spec over, orders go out anew, and maintenance ends when every node offers what
  was ordered.
- `Node`: one node after the other is ordered to divide its cards anew. Its agent does so at once with cards that no pod
  holds, and then it is the next node's turn; the others follow as their pods end. When every node has done so, the
  status takes the allocation over. A node that does not get on with its free cards keeps the others waiting.

Reverting the spec ends both: nodes are ordered what they had. Nothing ever ends a pod; past the deadline the pool says
so.
"""

from datetime import datetime

import msgspec

from gpu_control_plane.api.allocation import Allocation
from gpu_control_plane.api.gpunodestate import Assignment
from gpu_control_plane.api.gpupool import GPUPool, Maintenance, MaintenanceStrategy
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.pools.capacity import PoolCapacity


class Progress(msgspec.Struct, frozen=True):
    """Where a pool stands."""

    allocation: Allocation
    """What nodes are to be ordered from now on."""
    maintenance: Maintenance | None = None


def is_changing(pool: GPUPool) -> bool:
    """Whether the nodes are not ordered what the spec asks for."""
    return pool.status.allocation is not None and pool.status.allocation != pool.spec.allocation.canonical


def carried_out(pool: GPUPool) -> GPUPool:
    """The pool as it is when its nodes have done what the spec asks for."""
    status = msgspec.structs.replace(pool.status, allocation=pool.spec.allocation.canonical, maintenance=None)
    return msgspec.structs.replace(pool, status=status)


def serves_meanwhile(pool: GPUPool) -> bool:
    """Whether pods may come to the pool during maintenance."""
    return pool.spec.maintenance.strategy is MaintenanceStrategy.NODE


def is_overdue(maintenance: Maintenance, now: datetime) -> bool:
    return now >= maintenance.deadline


def ordered_allocation(pool: GPUPool, node: str, held: Assignment | None) -> Allocation | None:
    """What the node is to be ordered for a card of the pool; None for nothing now. `held` is its order so far."""
    if not is_changing(pool):
        return pool.status.allocation
    if not serves_meanwhile(pool):
        return None
    target = pool.spec.allocation.canonical
    begun = held is not None and held.allocation == target
    return target if begun or is_in_turn(pool, node) else pool.status.allocation


def is_in_turn(pool: GPUPool, node: str) -> bool:
    """Whether this is the node that divides its cards anew now."""
    maintenance = pool.status.maintenance
    return maintenance is not None and maintenance.node == node and is_changing(pool) and serves_meanwhile(pool)


def progress(pool: GPUPool, capacity: PoolCapacity, now: datetime) -> Progress:
    """The next state of a pool with this capacity."""
    target, current = pool.spec.allocation.canonical, pool.status.allocation
    if current is None or pool.deleting:
        return Progress(current or target)
    if current == target:
        return _verified(pool, capacity, current)
    return _one_by_one(pool, capacity, now) if serves_meanwhile(pool) else _together(pool, capacity, now)


def _verified(pool: GPUPool, capacity: PoolCapacity, current: Allocation) -> Progress:
    """The nodes were ordered what the spec says: after a change, or because it was reverted."""
    maintenance = pool.status.maintenance
    if maintenance is None:
        return Progress(current)
    missing = capacity.nodes_without(current)
    if not missing:
        return Progress(current)
    return Progress(current, _counted(maintenance, capacity, missing))


def _together(pool: GPUPool, capacity: PoolCapacity, now: datetime) -> Progress:
    target = pool.spec.allocation.canonical
    busy = capacity.busy_nodes()
    if busy or pool.status.maintenance is None:
        return Progress(pool.allocation, _counted(_begun(pool, now), capacity, busy))
    missing = capacity.nodes_without(target)
    return Progress(target, _counted(_begun(pool, now), capacity, missing) if missing else None)


def _one_by_one(pool: GPUPool, capacity: PoolCapacity, now: datetime) -> Progress:
    target = pool.spec.allocation.canonical
    missing = capacity.nodes_without(target)
    if not missing:
        return Progress(target)
    maintenance = _counted(_begun(pool, now), capacity, missing)
    turn = capacity.next_node(target) or maintenance.node
    return Progress(pool.allocation, msgspec.structs.replace(maintenance, node=turn))


def _begun(pool: GPUPool, now: datetime) -> Maintenance:
    """The maintenance that is under way, or a new one. Another change of the spec meanwhile does not begin anew."""
    reason = f"{pool.allocation} → {pool.spec.allocation.canonical}"
    if (known := pool.status.maintenance) is not None:
        return msgspec.structs.replace(known, reason=reason)
    deadline = now + pool.spec.maintenance.time_limit
    return Maintenance(since=now, reason=reason, units_in_use=0, nodes_done=0, nodes_total=0, deadline=deadline)


def _counted(maintenance: Maintenance, capacity: PoolCapacity, missing: dict[str, int]) -> Maintenance:
    """`missing` are the nodes that are not done, with the units that pods hold there."""
    return msgspec.structs.replace(
        maintenance,
        units_in_use=sum(missing.values()),
        nodes_done=capacity.nodes - len(missing),
        nodes_total=capacity.nodes,
    )


def message(maintenance: Maintenance) -> str:
    """How far it is, for people."""
    done = f"{maintenance.nodes_done} of {counted(maintenance.nodes_total, 'node')} done"
    return f"{maintenance.reason}: {done}, {counted(maintenance.units_in_use, 'unit')} in use"
