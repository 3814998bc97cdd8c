"""Sets the taints of pools on their Nodes and takes them off: one controller, keyed by node."""

import msgspec
from msgspec import UNSET, UnsetType

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.scheduling import Taint
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.pools.node_taints import plan_taints, wanted_taints
from gpu_control_plane.pools.snapshot import claim_of

MANAGER = "gpu-pools-taints"

_NODE = "node"


class _Taints(msgspec.Struct):
    taints: tuple[Taint, ...] | UnsetType = UNSET


class TaintsApplyConfiguration(msgspec.Struct):
    """The record of our taints, under a manager of its own: pools apply the rest of the status without it."""

    status: _Taints


class NodeTaints:
    """The controller, on caches that it shares with the rest of pools. They are indexed by node already."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._applier = runtime.applier(MANAGER)
        self._nodes = runtime.cache(Node)
        self._states = runtime.cache(GPUNodeState)
        self._devices = runtime.cache(GPUDevice)
        self._pools = runtime.cache(GPUPool)

    def start(self) -> None:
        controller = self._runtime.controller("pools-taints", self._reconcile)
        controller.watch(self._nodes, when=_taints_changed)
        controller.watch(self._states, when=_record_changed)
        controller.watch(self._devices, lambda device: (Key(device.spec.node_name),), when=_claim_changed)
        controller.watch(self._pools, lambda _pool: [state.key for state in self._states], when=_wanted_changed)

    async def _reconcile(self, key: Key) -> None:
        node, state = self._nodes.at(key), self._states.at(key)
        if node is None or state is None or state.deleting:
            return
        claimed = {claim_of(device) for device in self._devices.by_index(_NODE, key.name)}
        wanted = wanted_taints(pool for pool in self._pools if pool.name in claimed)
        plan = plan_taints(node.spec.taints, state.status.taints, wanted)
        record = TaintsApplyConfiguration(_Taints(plan.recorded or UNSET))
        await self._applier.apply(GPUNodeState, state.name, record, state, subresource="status", guarded=True)
        if plan.on_node != node.spec.taints:
            await self._runtime.client.patch(
                Node,
                node.name,
                {"spec": {"taints": msgspec.to_builtins(plan.on_node)}},
                resource_version=node.metadata.resource_version,
            )


def _taints_changed(old: Node | None, new: Node | None) -> bool:
    return old is None or new is None or old.spec.taints != new.spec.taints


def _record_changed(old: GPUNodeState | None, new: GPUNodeState | None) -> bool:
    return old is None or new is None or old.status.taints != new.status.taints


def _claim_changed(old: GPUDevice | None, new: GPUDevice | None) -> bool:
    return old is None or new is None or claim_of(old) != claim_of(new)


def _wanted_changed(old: GPUPool | None, new: GPUPool | None) -> bool:
    """A pool that comes or goes has no cards, and one without taints means nothing to Nodes."""
    return old is not None and new is not None and old.spec.scheduling.taints != new.spec.scheduling.taints
