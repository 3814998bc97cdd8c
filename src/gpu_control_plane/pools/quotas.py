"""The ResourceQuotas that a pool keeps in namespaces, and what the pool says about them. Pure.

The API server holds a ResourceQuota without races, and with our controller down. Each of ours is an object of its own
beside those that people made: of several quotas, all must allow a pod.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from gpu_control_plane.api.access import Quota
from gpu_control_plane.api.allocation import canonical_profile, resource_suffix
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Label, PoolCondition, Reason
from gpu_control_plane.api.namespace import ResourceQuota
from gpu_control_plane.kube.conditions import condition, find
from gpu_control_plane.kube.objects import Condition, OwnerReference
from gpu_control_plane.kube.quantities import parse_quantity
from gpu_control_plane.kube.sentences import counted

_REQUESTS = "requests."
_MAX_NAMED = 5
"""How many namespaces a condition names."""


def quota_name(pool: str) -> str:
    """The name of a pool's ResourceQuota in every namespace."""
    return f"gpu-pool-{pool}"


def desired_limits(pool: GPUPool, namespace: str) -> dict[str, str] | None:
    """What the namespace may hold of each of the pool's resources, as `spec.hard`; None if the pool does not say."""
    quota = next((quota for quota in pool.spec.quotas if quota.namespace == namespace), None)
    if quota is None:
        return None
    limits = {name: _limit(pool, quota, name) for name in pool.resource_names}
    return {f"{_REQUESTS}{name}": str(limit) for name, limit in limits.items() if limit is not None}


def owner(pool: GPUPool) -> OwnerReference:
    """A quota goes with its pool, also where our controller is gone by then."""
    return OwnerReference(
        api_version=pool.resource.api_version, kind=pool.resource.kind, name=pool.name, uid=pool.metadata.uid
    )


def is_applied(pool: GPUPool, held: ResourceQuota, limits: Mapping[str, str]) -> bool:
    """Whether the object is as it should be. It is ours as a whole: limits that others add to it are removed."""
    return held.spec.hard == limits and owner(pool) in held.metadata.owner_references


def is_ours(held: ResourceQuota) -> bool:
    """Whether a ResourceQuota is one that pools made, by its name and its label."""
    return held.name == quota_name(held.metadata.labels.get(Label.POOL, ""))


def quota_condition(
    pool: GPUPool, quotas: Iterable[ResourceQuota], namespaces: Iterable[str], now: datetime
) -> Condition | None:
    """Whether the pool's quotas hold; None for a pool that never had any. `namespaces` are those that exist.

    A pool whose last quota was removed keeps the condition: server-side apply takes away only what a write leaves out,
    and nothing would be written for it alone.
    """
    asked = [quota.namespace for quota in pool.spec.quotas]
    if not asked and find(pool.status.conditions, PoolCondition.QUOTAS_HOLD) is None:
        return None
    exist = set(namespaces)
    held = {quota.metadata.namespace: quota for quota in quotas}
    missing = [name for name in asked if name not in exist]
    waiting = [name for name in asked if name in exist and name not in held]
    exceeded = [f"{name} holds {text}" for name in asked if name in held and (text := _excess(held[name]))]
    if waiting:
        status, reason = False, Reason.QUOTA_NOT_WRITTEN
        message = (
            f"{_named(waiting)} has no ResourceQuota {quota_name(pool.name)} of ours yet; "
            "if another object has that name, rename it"
        )
    elif missing:
        status, reason = True, Reason.NAMESPACE_NOT_FOUND
        message = f"{_named(missing)} does not exist: its limit holds from the moment it is created"
    elif exceeded:
        status, reason = True, Reason.OVER_QUOTA
        message = f"{_named(exceeded)}: these pods go on, and new ones are refused until it holds less"
    else:
        status, reason, message = True, Reason.QUOTAS_HOLD, ""
    return condition(
        pool.status.conditions,
        PoolCondition.QUOTAS_HOLD,
        status,
        reason,
        message,
        generation=pool.metadata.generation,
        now=now,
    )


def _limit(pool: GPUPool, quota: Quota, resource: str) -> int | None:
    for part in quota.profiles:
        if resource == f"{pool.resource_name}.{resource_suffix(canonical_profile(part.profile))}":
            return part.units
    return quota.units


def _excess(quota: ResourceQuota) -> str | None:
    """What the namespace holds beyond its limits, as `3 of 2 gpu.deckhouse.io/training`."""
    for key, limit in quota.spec.hard.items():
        used = quota.status.used.get(key, "0")
        if parse_quantity(used) > parse_quantity(limit):
            return f"{used} of {limit} {key.removeprefix(_REQUESTS)}"
    return None


def _named(names: list[str]) -> str:
    more = len(names) - _MAX_NAMED
    shown = ", ".join(names[:_MAX_NAMED])
    return f"{shown} and {counted(more, 'more namespace')}" if more > 0 else shown
