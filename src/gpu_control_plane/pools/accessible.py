"""What a pool says about access: whether `spec.access` admits anybody, and whether anybody else is kept out. Pure."""

from datetime import datetime

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import USE, PoolCondition, Reason
from gpu_control_plane.kube.conditions import condition
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.rules.access_policy import POD_ACCESS
from gpu_control_plane.rules.pool_access import admits_nobody


def access_conditions(pool: GPUPool, *, overfull: bool, guarded: bool, now: datetime) -> tuple[Condition, ...]:
    """Accessible and Guarded."""
    return _accessible(pool, overfull=overfull, now=now), _guarded(pool, guarded=guarded, now=now)


def _guarded(pool: GPUPool, *, guarded: bool, now: datetime) -> Condition:
    missing = (
        f"The admission policy {POD_ACCESS} or its binding is missing, so every pod can ask for "
        f"{pool.resource_name}. Both are part of the release: upgrade it, which makes them anew."
    )
    return condition(
        pool.status.conditions,
        PoolCondition.GUARDED,
        guarded,
        Reason.POLICY_IN_FORCE if guarded else Reason.POLICY_MISSING,
        "" if guarded else missing,
        generation=pool.metadata.generation,
        now=now,
    )


def _accessible(pool: GPUPool, *, overfull: bool, now: datetime) -> Condition:
    """The condition Accessible. RBAC is not read, so it cannot say whether somebody is admitted by the verb `use`."""
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
