"""Everything that an explanation depends on, made of caches by the controller and of reads by a command."""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import Capacity, GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.pools.pending_reasons import PendingReason


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A pool, what its nodes have, and the cards that it could have."""

    pool: GPUPool
    capacity: PoolCapacity
    waiting_on: Callable[[PendingReason], Mapping[str, int]]
    """On which nodes how many cards that the pool selects are not in it for this reason."""
    approvable: Callable[[str], Sequence[str]]
    """The cards of a node that a person could approve for the pool."""

    def total(self, resource: str) -> Capacity:
        return self.capacity.resources((resource,))[0]


class PodSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that has no node yet, and what it asks for."""

    pod: WaitingPod
    pools: Mapping[str, PoolView]
    """Those that the pod asks for, by resource."""
    resources: Callable[[], Collection[str]]
    """The resources of all pools, for a hint at a mistyped one."""
    node: Callable[[str], Node | None]
    state: Callable[[str], GPUNodeState | None]
    ahead: int | None = None
    """Pods that ask for the same and have waited longer or have a higher priority; None where it was not counted."""
    holders: Mapping[str, Mapping[str, int]] = {}
    """Units held, by resource and namespace; only for an administrator."""


def free_units(capacity: Capacity) -> int:
    """Units that no pod holds. Those promised to pods count: the pod in question may be the one."""
    return capacity.available + capacity.reserved


def approvable_cards(state: GPUNodeState, device: Callable[[str], GPUDevice | None]) -> list[GPUDevice]:
    """The cards of a node that wait for a person's approval, for whichever pool."""
    pending = state.status.pools.pending if state.status.pools is not None else ()
    names = sorted(card.inventory_id for card in pending if card.reason == PendingReason.APPROVAL)
    return [found for name in names if (found := device(name)) is not None]
