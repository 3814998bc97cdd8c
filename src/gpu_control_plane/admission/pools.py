"""The review of a GPUPool that is about to be written. Pure."""

from collections.abc import Iterable
from datetime import timedelta

import msgspec

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Reason
from gpu_control_plane.kube.admission import AdmissionResponse, allow, deny
from gpu_control_plane.rules.pool_validation import faults


def review(pool: GPUPool, before: GPUPool | None, others: Iterable[GPUPool]) -> AdmissionResponse:
    """Refuse a new pool whose fault does not go away by itself; warn about the rest.

    A pool that already has the fault may be changed all the same: refusing would keep people from correcting it.
    """
    rest = [other for other in others if other.name != pool.name]
    found = faults([*rest, pool if before else _youngest(pool, rest)]).get(pool.name)
    if found is None:
        return allow()
    had_it_before = before is not None and faults([*rest, before]).get(pool.name) == found
    if found.reason is Reason.NAME_COLLISION and not had_it_before:
        return deny(f"{found.message[0].upper()}{found.message[1:]}.")
    return allow(warnings=[found.message])


def _youngest(pool: GPUPool, others: Iterable[GPUPool]) -> GPUPool:
    """A pool that is being created is the youngest. Its timestamp, in whole seconds, may be that of another."""
    ages = [other.metadata.creation_timestamp for other in others if other.metadata.creation_timestamp is not None]
    if not ages:
        return pool
    metadata = msgspec.structs.replace(pool.metadata, creation_timestamp=max(ages) + timedelta(seconds=1))
    return msgspec.structs.replace(pool, metadata=metadata)
