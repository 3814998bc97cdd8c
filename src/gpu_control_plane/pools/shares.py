"""The parts of objects that pools own, in the form in which they are applied."""

import msgspec
from msgspec import UNSET, UnsetType

from gpu_control_plane.api.gpudevice import Change, DeviceState
from gpu_control_plane.api.gpunodestate import Assignment, NodePools
from gpu_control_plane.api.gpupool import PoolStatus
from gpu_control_plane.api.shapes import PoolRef, wire_name
from gpu_control_plane.pools.decide import CardPlan


class _DeviceStatus(msgspec.Struct, rename=wire_name, kw_only=True):
    state: DeviceState
    pool_ref: PoolRef | UnsetType = UNSET
    history: tuple[Change, ...] | UnsetType = UNSET


class DeviceShare(msgspec.Struct):
    status: _DeviceStatus

    @classmethod
    def of(cls, plan: CardPlan) -> "DeviceShare":
        pool = PoolRef(name=plan.pool) if plan.pool else UNSET
        return cls(_DeviceStatus(state=plan.state, pool_ref=pool, history=plan.history or UNSET))


class _Orders(msgspec.Struct):
    assignments: tuple[Assignment, ...]
    """Also when empty: a spec from which the last field is released becomes null, which the schema refuses."""


class OrdersShare(msgspec.Struct):
    spec: _Orders

    @classmethod
    def of(cls, assignments: tuple[Assignment, ...]) -> "OrdersShare":
        return cls(_Orders(assignments))


class _NodeStatus(msgspec.Struct):
    pools: NodePools


class NodeShare(msgspec.Struct):
    status: _NodeStatus

    @classmethod
    def of(cls, pools: NodePools) -> "NodeShare":
        return cls(_NodeStatus(pools))


class PoolShare(msgspec.Struct):
    """The whole status: nobody else writes to it."""

    status: PoolStatus
