"""The fleet: the objects that views are made of, at one moment. Commands read them, the console has them in caches."""

from collections.abc import Mapping, Sequence

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import Pod, WaitingPod


class Missing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the reader was not shown: a view that is made without it says so."""

    kind: str
    """As kubectl calls it, such as `gpudevices.gpu.deckhouse.io`."""
    why: str
    """In a sentence: no right to read it, or not installed."""
    installed: bool = True
    """Whether the cluster has such a kind at all."""


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """What was read. A kind that was not asked for is empty; one that could not be read is empty and `missing`."""

    cards: Mapping[str, GPUDevice] = {}
    states: Mapping[str, GPUNodeState] = {}
    pools: Mapping[str, GPUPool] = {}
    nodes: Mapping[str, Node] = {}
    waiting: Sequence[WaitingPod] = ()
    """Pods without a node that ask for the resource of a pool."""
    placed: Sequence[Pod] = ()
    """Pods of one namespace that have a node and ask for such a resource. Only for somebody who may not read cards: the
    users of cards are what counts."""
    missing: tuple[Missing, ...] = ()

    def lacks(self, resource: str) -> bool:
        """Whether a kind, by the plural of its name, could not be read."""
        return any(each.kind.split(".")[0] == resource for each in self.missing)


def asks_for_a_pool(pod: Pod, pools: Mapping[str, GPUPool]) -> bool:
    """Whether it asks for the resource of one of the pools, or for one that only a pool of ours can have."""
    asked = pod.extended_resource_names
    if any(name.startswith(f"{GROUP}/") for name in asked):
        return True
    return any(not asked.isdisjoint(pool.resource_names) for pool in pools.values())
