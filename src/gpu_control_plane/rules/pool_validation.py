"""What is wrong with pools that the schema cannot see, because it takes all of them to know. Pure.

The webhook says it before a pool is written, `pools` says it afterwards: the webhook may have been away.
"""

from collections.abc import Iterable

import msgspec

from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Reason


class Fault(msgspec.Struct, frozen=True):
    """Why a pool takes no cards, for programs and for people."""

    reason: Reason
    message: str


def seniority(pool: GPUPool) -> tuple[float, str]:
    """Pools in the order in which they get their way: the older first."""
    created = pool.metadata.creation_timestamp
    return (created.timestamp() if created else 0.0, pool.name)


def faults(pools: Iterable[GPUPool]) -> dict[str, Fault]:
    """The pools that cannot be carried out as they are written, by name."""
    found: dict[str, Fault] = {}
    owners: dict[str, GPUPool] = {}
    for pool in sorted(pools, key=seniority):
        if pool.spec.allocation.mode is not Mode.EXCLUSIVE:
            found[pool.name] = Fault(
                Reason.UNSUPPORTED_MODE,
                f"mode {pool.spec.allocation.mode} is not carried out by this release: use Exclusive",
            )
            continue
        rival = next((owners[name] for name in pool.resource_names if name in owners), None)
        if rival is not None:
            found[pool.name] = Fault(
                Reason.NAME_COLLISION,
                f"the older pool {rival.name} has the same resource {pool.resource_name}: "
                "give this one another spec.resource.name",
            )
            continue
        owners |= dict.fromkeys(pool.resource_names, pool)
    return found
