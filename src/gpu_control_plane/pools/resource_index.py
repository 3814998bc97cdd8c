"""Pools and waiting pods by resource: the indexes that the controllers of pools share."""

from typing import Final

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.predicates import spec_changed

RESOURCE: Final = "resource"


def index_resources(pools: Cache[GPUPool], pods: Cache[WaitingPod]) -> None:
    """File pools and pods under the names of resources."""
    pools.index(RESOURCE, lambda pool: pool.resource_names)
    pods.index(RESOURCE, lambda pod: pod.extended_resource_names)


def resources_may_change(old: GPUPool | None, new: GPUPool | None) -> bool:
    """The resources of a pool follow from its spec, and from how its cards are divided until that is carried out."""
    return spec_changed(old, new) or old is None or new is None or old.resource_names != new.resource_names
