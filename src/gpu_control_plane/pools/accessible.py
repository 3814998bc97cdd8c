"""The condition Accessible of a pool: whether `spec.access` admits anybody, and what to write if it does not. Pure."""

from datetime import datetime

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import USE, PoolCondition, Reason
from gpu_control_plane.kube.conditions import condition
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.rules.pool_access import admits_nobody


def access_condition(pool: GPUPool, *, overfull: bool, now: datetime) -> Condition:
    """The condition. RBAC is not read, so it cannot say whether somebody is admitted by the verb `use`."""
    if admits_nobody(pool):
        admitted, reason = False, Reason.NOBODY_ADMITTED
        message = (
            f"spec.access names nobody, so only those with the RBAC verb {USE} on the pool can ask for "
            f"{pool.resource_name}. Write spec.access, such as {{namespaces: [team-a]}}, "
            "or {namespaceSelector: {}} for every namespace."
        )
    elif overfull:
        admitted, reason = False, Reason.ACCESS_LIST_TOO_LONG
        message = (
            "The lists in spec.access have no room in the index of access, so they admit nobody. "
            "Name namespaces by a label (access.namespaceSelector) instead of one by one, here or in other pools."
        )
    else:
        admitted, reason, message = True, Reason.ACCESS_GRANTED, ""
    return condition(
        pool.status.conditions,
        PoolCondition.ACCESSIBLE,
        admitted,
        reason,
        message,
        generation=pool.metadata.generation,
        now=now,
    )
