"""Keeps the ResourceQuotas of pools: one controller, keyed by pool and namespace."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Label, Reason
from gpu_control_plane.api.namespace import Namespace, ResourceQuota
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.controller import Controller, Requeue
from gpu_control_plane.kube.errors import AlreadyExists, NotFound
from gpu_control_plane.kube.objects import Condition, Key
from gpu_control_plane.kube.predicates import spec_changed
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.pools.quotas import desired_limits, is_applied, is_ours, owner, quota_condition, quota_name
from gpu_control_plane.pools.resource_index import RESOURCE, resources_may_change
from gpu_control_plane.rules.pool_validation import PoolFault

OURS = Selection(labels=Label.POOL)
"""ResourceQuotas with the label of a pool, in every namespace."""

_NAMESPACE, _POOL = "quota-namespace", "pool"
_FOREIGN_QUOTA_RETRY_SECONDS = 60.0


class Quotas:
    """The ResourceQuotas of all pools."""

    def __init__(self, runtime: Runtime, faults: Callable[[], Mapping[str, PoolFault]]) -> None:
        """`faults` gives the pools that cannot be carried out."""
        self._client = runtime.client
        self._faults = faults
        self._pools = runtime.cache(GPUPool)
        self._namespaces = runtime.cache(Namespace)
        self._held = runtime.cache(ResourceQuota, OURS)
        self._controller = runtime.controller("pools-quotas", self._reconcile)

    def start(self, status: Controller) -> None:
        """Begin; `status` is the controller that writes the status of pools, with `conditions` in it."""
        self._pools.index(_NAMESPACE, lambda pool: (quota.namespace for quota in pool.spec.quotas))
        self._held.index(_POOL, lambda quota: (quota.metadata.labels[Label.POOL],) if is_ours(quota) else ())
        self._controller.watch(self._pools, self._of_pool, when=resources_may_change)
        self._controller.watch(self._held, _of_quota)
        self._controller.watch(self._namespaces, self._of_namespace, when=spec_changed)
        status.watch(self._held, lambda quota: (Key(key.name) for key in _of_quota(quota)))
        status.watch(
            self._namespaces,
            lambda namespace: (Key(key.name) for key in self._of_namespace(namespace)),
            when=spec_changed,
        )

    def conditions(self, pool: GPUPool, now: datetime) -> tuple[Condition, ...]:
        """What the pool's status says about its quotas: nothing if it has none."""
        exist = (quota.namespace for quota in pool.spec.quotas if self._namespaces.get(quota.namespace))
        found = quota_condition(pool, self._held.by_index(_POOL, pool.name), exist, now)
        return (found,) if found is not None else ()

    def _of_pool(self, pool: GPUPool) -> Iterable[Key]:
        """The pool, and those that want a resource of the same name: of two the younger has no quotas."""
        alike = {other.name: other for name in pool.resource_names for other in self._pools.by_index(RESOURCE, name)}
        for each in (pool, *alike.values()):
            yield from (Key(each.name, quota.namespace) for quota in each.spec.quotas)

    def _of_namespace(self, namespace: Namespace) -> Iterable[Key]:
        return [Key(pool.name, namespace.name) for pool in self._pools.by_index(_NAMESPACE, namespace.name)]

    async def _reconcile(self, key: Key) -> Requeue | None:
        pool = self._pools.get(key.name)
        namespace = self._namespaces.get(key.namespace or "")
        if namespace is None or namespace.deleting:
            return None
        held = self._held.get(quota_name(key.name), key.namespace)
        limits = self._limits(pool, key.namespace or "")
        try:
            if pool is not None and limits is not None:
                await self._write(pool, namespace.name, held, limits)
            elif held is not None and is_ours(held):
                version = held.metadata.resource_version
                await self._client.delete(
                    ResourceQuota, held.name, key.namespace, uid=held.metadata.uid, resource_version=version
                )
        except NotFound:
            return None  # the object or its namespace has just gone; the caches are about to show that
        except AlreadyExists:
            # One without our label has the name. Nothing tells when it goes.
            return Requeue(after=_FOREIGN_QUOTA_RETRY_SECONDS)
        return None

    def _limits(self, pool: GPUPool | None, namespace: str) -> dict[str, str] | None:
        if pool is None:
            return None
        fault = self._faults().get(pool.name)
        if fault is not None and fault.reason is Reason.NAME_COLLISION:
            return None  # the resource is that of another pool
        return desired_limits(pool, namespace)

    async def _write(self, pool: GPUPool, namespace: str, held: ResourceQuota | None, limits: dict[str, str]) -> None:
        metadata = {"labels": {Label.POOL: pool.name}, "ownerReferences": [owner(pool)]}
        if held is None:
            body = {"metadata": {"name": quota_name(pool.name), **metadata}, "spec": {"hard": limits}}
            await self._client.create(ResourceQuota, body, namespace)
        elif not is_applied(pool, held, limits):
            removed = dict.fromkeys(held.spec.hard.keys() - limits.keys())
            await self._client.patch(
                ResourceQuota,
                held.name,
                {"metadata": metadata, "spec": {"hard": {**removed, **limits}}},
                namespace=namespace,
                resource_version=held.metadata.resource_version,
            )


def _of_quota(quota: ResourceQuota) -> Iterable[Key]:
    return (Key(quota.metadata.labels[Label.POOL], quota.metadata.namespace),) if is_ours(quota) else ()
