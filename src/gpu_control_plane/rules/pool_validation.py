"""What is wrong with a pool that its schema cannot show, because it depends on the other pools. Pure.

The webhook refuses or warns before a pool is written; `pools` writes the same as a condition afterwards, since the
webhook may have been unavailable.
"""

from collections.abc import Iterable
from datetime import timedelta

import msgspec

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Reason


class PoolFault(msgspec.Struct, frozen=True):
    """Why a pool takes no cards, for programs and for people."""

    reason: Reason
    message: str


def by_age(pool: GPUPool) -> tuple[float, str]:
    """Sorts pools the older first: of two that want the same, the older has it."""
    created = pool.metadata.creation_timestamp
    return (created.timestamp() if created else 0.0, pool.name)


def youngest(pool: GPUPool, others: Iterable[GPUPool]) -> GPUPool:
    """A pool that is being created is the youngest. Its timestamp, in whole seconds, may be that of another."""
    ages = [other.metadata.creation_timestamp for other in others if other.metadata.creation_timestamp is not None]
    if not ages:
        return pool
    metadata = msgspec.structs.replace(pool.metadata, creation_timestamp=max(ages) + timedelta(seconds=1))
    return msgspec.structs.replace(pool, metadata=metadata)


def new_fault(pool: GPUPool, before: GPUPool | None, others: Iterable[GPUPool]) -> PoolFault | None:
    """What is wrong with a pool that is about to be written beside these, which may hold its former self."""
    rest = [other for other in others if other.name != pool.name]
    return faults([*rest, pool if before else youngest(pool, rest)]).get(pool.name)


def faults(pools: Iterable[GPUPool]) -> dict[str, PoolFault]:
    """The pools whose spec cannot be carried out, by name."""
    found: dict[str, PoolFault] = {}
    owners: dict[str, GPUPool] = {}
    for pool in sorted(pools, key=by_age):
        shared = next((name for name in pool.resource_names if name in owners), None)
        if shared is not None:
            found[pool.name] = PoolFault(
                Reason.NAME_COLLISION,
                f"the older pool {owners[shared].name} has the same resource {shared}: "
                "give this one another spec.resource.name",
            )
            continue
        owners |= dict.fromkeys(pool.resource_names, pool)
    return found
