"""The status of a pool. Pure: its capacity in, a status out."""

from datetime import datetime

import msgspec

from gpu_control_plane.api.gpupool import Capacity, GPUPool, PoolNodes, PoolPhase, PoolStatus, Units
from gpu_control_plane.api.names import PoolCondition, Reason
from gpu_control_plane.kube.conditions import condition
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.rules.pool_validation import PoolFault


def pool_status(
    pool: GPUPool,
    capacity: PoolCapacity,
    fault: PoolFault | None,
    now: datetime,
    *,
    also: tuple[Condition, ...] = (),
) -> PoolStatus:
    """The status of a pool. Its units add up to the total once every node offers what was ordered.

    `also` are conditions about something else than its cards.
    """
    units = capacity.units
    phase, ready, reason, message = _phase(pool, units, capacity.offered, fault)
    held = pool.status.conditions
    generation = pool.metadata.generation
    configured = (
        condition(held, PoolCondition.CONFIGURED, False, fault.reason, fault.message, generation=generation, now=now)
        if fault
        else condition(held, PoolCondition.CONFIGURED, True, Reason.CONFIGURED, generation=generation, now=now)
    )
    return PoolStatus(
        observed_generation=generation,
        phase=phase,
        units=units,
        capacity=(Capacity(name=pool.resource_name, **msgspec.structs.asdict(units)),),
        nodes=PoolNodes(total=capacity.nodes, ready=capacity.ready, worst=capacity.worst),
        conditions=(
            configured,
            condition(held, PoolCondition.READY, ready, reason, message, generation=generation, now=now),
            *also,
        ),
    )


def _phase(pool: GPUPool, units: Units, offered: int, fault: PoolFault | None) -> tuple[PoolPhase, bool, Reason, str]:
    if pool.deleting:
        return PoolPhase.PENDING, False, Reason.DELETING, f"waits until {units.total} cards are released"
    if fault is not None:
        return PoolPhase.MISCONFIGURED, False, fault.reason, fault.message
    if units.total == 0:
        return PoolPhase.PENDING, False, Reason.NO_CARDS, "no card is in the pool: approve cards that it selects"
    if offered == 0:
        return PoolPhase.PENDING, False, Reason.NOT_OFFERED, f"none of {units.total} cards is offered by its node"
    return PoolPhase.READY, True, Reason.CARDS_ON_OFFER, ""
