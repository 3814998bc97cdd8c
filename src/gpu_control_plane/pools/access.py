"""Keeps the index of who may use which resource, and has it written before any card of a pool is ordered.

The admission policies read the index. An order that went out first would bring a resource onto nodes that pods without
access could ask for.
"""

import asyncio
from collections.abc import Iterable
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.admissionpolicy import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.controller import Controller
from gpu_control_plane.kube.objects import FieldManager, Key, Object, Resource
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.pools.resource_index import resources_may_change
from gpu_control_plane.rules.access_index import INDEX_NAME, access_index, pool_in, resource_of
from gpu_control_plane.rules.access_policy import POD_ACCESS

_RESOURCE: Final = "resource"


class IndexConfigMap(Object, frozen=True):
    """The ConfigMap that holds the index."""

    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")

    data: dict[str, str] = {}


class _IndexApplyConfiguration(msgspec.Struct):
    data: dict[str, str]


class AccessIndexWriter:
    """Brings the index up to date with the pools. Nothing is written or computed while nothing has changed."""

    def __init__(
        self,
        runtime: Runtime,
        manager: FieldManager,
        namespace: str,
        *,
        pools: Cache[GPUPool],
        states: Cache[GPUNodeState],
    ) -> None:
        """The index is in `namespace`."""
        self._runtime = runtime
        self._manager = manager
        self._key = Key(INDEX_NAME, namespace)
        self._pools = pools
        self._states = states
        self._index = runtime.cache(
            IndexConfigMap, Selection(namespace=namespace, fields=f"metadata.name={INDEX_NAME}")
        )
        named = Selection(fields=f"metadata.name={POD_ACCESS}")
        self._policy = runtime.cache(ValidatingAdmissionPolicy, named)
        self._binding = runtime.cache(ValidatingAdmissionPolicyBinding, named)
        self._lock = asyncio.Lock()
        self._stale = True
        self._retired: frozenset[str] = frozenset()
        self.overfull: frozenset[str] = frozenset()
        """Pools whose lists do not fit into the index."""

    @property
    def guarded(self) -> bool:
        """Whether the policy that reads the index is there."""
        return self._policy.get(POD_ACCESS) is not None and self._binding.get(POD_ACCESS) is not None

    def start(self, status: Controller) -> None:
        """`status` writes the conditions of pools, and is woken for all of them when the policy comes or goes."""
        for guard in (self._policy, self._binding):
            status.watch(guard, lambda _guard: [pool.key for pool in self._pools], when=_came_or_went)
        self._states.index(_RESOURCE, _resources)
        self._pools.on_change(self._pool_changed)
        self._states.on_change(self._state_changed)
        self._index.on_change(self._index_changed)
        self._runtime.on_lead(self._mark_stale)
        controller = self._runtime.controller("pools-access", self._reconcile, workers=1)
        controller.watch(self._index)
        controller.watch(self._pools, lambda _pool: (self._key,), when=resources_may_change)
        controller.watch(self._states, lambda _state: (self._key,), when=lambda _old, _new: self._stale)

    async def ensure(self) -> None:
        """Return once the index in the cluster has every pool that the cache has, as it is there."""
        async with self._lock:
            if not self._stale:
                return
            self._stale = False  # what changes from here on makes it stale again
            try:
                await self._write()
            except BaseException:
                self._stale = True
                raise

    async def _reconcile(self, _key: Key) -> None:
        await self.ensure()

    async def _write(self) -> None:
        observed = self._index.at(self._key)
        held = observed.data if observed is not None else {}
        named = {name for pool in self._pools for name in pool.resource_names}
        gone = {resource_of(key): pool_in(text) for key, text in held.items()}
        retired = {
            name: pool for name, pool in gone.items() if name not in named and self._states.count(_RESOURCE, name)
        }
        index = access_index(self._pools, retired)
        self._retired, self.overfull = frozenset(retired), index.overfull
        if observed is not None and held == index.data:
            return
        written = await self._runtime.client.apply(
            IndexConfigMap,
            INDEX_NAME,
            _IndexApplyConfiguration(index.data),
            manager=self._manager,
            namespace=self._key.namespace,
        )
        if foreign := written.data.keys() - index.data.keys():
            removal = {"data": dict.fromkeys(foreign)}
            await self._runtime.client.patch(IndexConfigMap, INDEX_NAME, removal, namespace=self._key.namespace)

    def _mark_stale(self) -> None:
        self._stale = True

    def _pool_changed(self, old: GPUPool | None, new: GPUPool | None) -> None:
        if resources_may_change(old, new):
            self._mark_stale()

    def _state_changed(self, old: GPUNodeState | None, _new: GPUNodeState | None) -> None:
        """A node may have stopped offering a resource that no pool has any more: then it leaves the index."""
        if old is not None and self._retired and not self._retired.isdisjoint(_resources(old)):
            self._mark_stale()

    def _index_changed(self, _old: IndexConfigMap | None, _new: IndexConfigMap | None) -> None:
        self._mark_stale()


def _came_or_went(old: Object | None, new: Object | None) -> bool:
    return (old is None) is not (new is None)


def _resources(state: GPUNodeState) -> Iterable[str]:
    """The resources that the node is ordered to offer, or offers."""
    ordered = {resource.name for order in state.spec.assignments for resource in order.resources}
    plugin = state.status.plugin
    return ordered | ({resource.name for resource in plugin.resources} if plugin is not None else set())
