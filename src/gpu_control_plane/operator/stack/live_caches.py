"""The stack's objects as the cluster has them: one cache for each kind, and for kinds whose CRD may come and go.

ServiceMonitors can be written only while the cluster knows the kind: a controller of its own watches for their CRD.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.kube import Cache, Key, Runtime, Selection, Signal
from gpu_control_plane.kube.crd import ESTABLISHED, CustomResourceDefinition
from gpu_control_plane.kube.dynamic_caches import DynamicCaches
from gpu_control_plane.operator.stack.live import (
    CORE_KINDS,
    OPTIONAL_KINDS,
    Live,
    LiveConfigMap,
    LiveDaemonSet,
    LiveRuntimeClass,
    LiveServiceMonitor,
)

OPERAND_LABEL: Final = str(PodLabel.OPERAND)
"""The label by which objects that this operator made are known."""


class LiveCaches:
    """Caches of all kinds that the stack consists of. `optional_changed` is fired when a kind that only some clusters
    have has come or gone, and when an object of such a kind has changed."""

    def __init__(self, runtime: Runtime, namespace: str) -> None:
        self.namespace = namespace
        self.optional_changed = Signal("optional-kinds")
        self._kinds = {kind.resource.kind: kind for kind in (*CORE_KINDS, *OPTIONAL_KINDS)}
        self._caches: dict[str, Cache[Any]] = {
            kind.resource.kind: runtime.cache(kind, self._selection(kind)) for kind in CORE_KINDS
        }
        self._optional = {kind.resource.kind: DynamicCaches(runtime.unfenced_client, kind) for kind in OPTIONAL_KINDS}
        for caches in self._optional.values():
            runtime.service(caches.run)

    def core(self) -> Iterable[Cache[Any]]:
        """The caches of kinds that every cluster has."""
        return [self._caches[kind.resource.kind] for kind in CORE_KINDS]

    def all(self) -> Iterable[tuple[str, Cache[Any]]]:
        """The caches of all kinds that the cluster knows, by kind."""
        return self._caches.items()

    async def follow(self, kind: str) -> None:
        """Watch a kind that this cluster has turned out to know. It counts as known once its objects have been read:
        before that, each of them would seem to be missing."""
        if kind not in self._caches:
            caches, selection = self._optional[kind], self._selection(self._kinds[kind])
            held = caches.follow(kind, selection, lambda _old, _new: self.optional_changed.fire())
            await held.synced_or_unavailable()
            self._caches[kind] = held
            self.optional_changed.fire()

    def unfollow(self, kind: str) -> None:
        """The cluster does not know the kind any more; all objects of the kind are gone with it."""
        if self._caches.pop(kind, None) is not None:
            self._optional[kind].forget(kind)
            self.optional_changed.fire()

    def knows(self, kind: str) -> bool:
        return kind in self._caches

    def kind(self, kind: str) -> type[Live]:
        return self._kinds[kind]

    def scope(self, kind: str) -> str | None:
        """The namespace of objects of the kind; None for a kind without namespaces."""
        return self.namespace if self._kinds[kind].resource.namespaced else None

    def get(self, kind: str, name: str) -> Live | None:
        found: Live | None = self._caches[kind].at(Key(name, self.scope(kind)))
        return found

    def daemonsets(self) -> Cache[LiveDaemonSet]:
        return self._caches[LiveDaemonSet.resource.kind]

    def config_maps(self) -> Mapping[str, Mapping[str, str]]:
        """The ConfigMaps of the namespace that people made, with their keys of both kinds."""
        held: Cache[LiveConfigMap] = self._caches[LiveConfigMap.resource.kind]
        return {
            item.name: {**(item.data or {}), **(item.binary_data or {})}
            for item in held
            if OPERAND_LABEL not in item.metadata.labels
        }

    def variants(self) -> dict[str, str]:
        """The variant that each DaemonSet is for, by name."""
        label = str(PodLabel.VARIANT)
        return {item.name: item.metadata.labels[label] for item in self.daemonsets() if label in item.metadata.labels}

    def _selection(self, kind: type[Live]) -> Selection:
        """What another operator has made for the policy is included: it lacks our label, but has to be pruned like the
        rest. Only of roles, of which a cluster has many, none but ours are held."""
        if kind.resource.namespaced:
            return Selection(namespace=self.namespace)
        return Selection() if kind is LiveRuntimeClass else Selection(labels=OPERAND_LABEL)


def follow_service_monitors(runtime: Runtime, live: LiveCaches) -> None:
    """Let ServiceMonitors be written while their CRD is established."""
    resource = LiveServiceMonitor.resource
    definitions = runtime.cache(CustomResourceDefinition, Selection(fields=f"metadata.name={resource.qualified_name}"))

    async def reconcile(key: Key) -> None:
        found = definitions.at(key)
        established = found.condition(ESTABLISHED) if found is not None and not found.deleting else None
        if established is not None and established.status == "True":
            await live.follow(resource.kind)
        else:
            live.unfollow(resource.kind)

    runtime.controller("stack-monitors", reconcile, workers=1).watch(definitions)
