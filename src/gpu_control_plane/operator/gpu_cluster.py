"""Whether there is a GPUCluster: NVIDIA's stack that hands out cards by dynamic resource allocation.

It and a ClusterPolicy would hand out the same cards, each without knowing of the other. NVIDIA's operator refuses to
carry out both, and so does this one. It serves no GPUClusters, so the kind is watched only while its CRD is there.
"""

import asyncio
from typing import ClassVar, Final

from gpu_control_plane.kube import Cache, Object, Resource, Runtime, Selection, Signal
from gpu_control_plane.kube.crd import ESTABLISHED, CustomResourceDefinition
from gpu_control_plane.kube.dynamic_caches import DynamicCaches

_NAME: Final = "gpu-clusters"


class GPUCluster(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("nvidia.com", "v1alpha1", "GPUCluster", "gpuclusters", namespaced=False)


class GPUClusterWatch:
    """Watches GPUClusters. `detected` is set once it is certain whether there is one; `changed` is fired then, and
    whenever one comes or goes."""

    def __init__(self, runtime: Runtime) -> None:
        self.detected = asyncio.Event()
        self.changed = Signal("gpu-cluster")
        self._caches = DynamicCaches(runtime.unfenced_client, GPUCluster)
        self._held: Cache[GPUCluster] | None = None
        selection = Selection(fields=f"metadata.name={GPUCluster.resource.qualified_name}")
        self._definitions = runtime.cache(CustomResourceDefinition, selection)
        self._definitions.on_change(self._definition_changed)
        for run in (self._caches.run, self._detect):
            runtime.service(run)

    def problem(self) -> str:
        """Why no ClusterPolicy can be carried out; empty without a GPUCluster. One that is being deleted counts: its
        pods may still hold cards."""
        found = sorted(one.name for one in self._held or ())
        return two_masters(found[0]) if found else ""

    async def _detect(self) -> None:
        await self._definitions.synced()
        if self._held is not None:
            await self._held.synced_or_unavailable()
        self.detected.set()
        self.changed.fire()
        await asyncio.Event().wait()

    def _definition_changed(self, _old: CustomResourceDefinition | None, new: CustomResourceDefinition | None) -> None:
        established = new.condition(ESTABLISHED) if new is not None and not new.deleting else None
        if established is not None and established.status == "True":
            self._held = self._caches.follow(_NAME, on_change=self._cluster_changed)
        elif self._held is not None:
            self._caches.forget(_NAME)
            self._held = None
            self.changed.fire()

    def _cluster_changed(self, old: GPUCluster | None, new: GPUCluster | None) -> None:
        if old is None or new is None:
            self.changed.fire()


def two_masters(name: str) -> str:
    return (
        f"GPUCluster {name} hands out cards by dynamic resource allocation, and a ClusterPolicy would hand out the"
        " same cards once more: delete the one or the other"
    )
