"""What pools apply: for each object the fields that pools own."""

import msgspec
from msgspec import UNSET, UnsetType

from gpu_control_plane.api.gpudevice import Change, DeviceState, Reservation
from gpu_control_plane.api.gpunodestate import Assignment, NodePools
from gpu_control_plane.api.gpupool import PoolStatus
from gpu_control_plane.api.shapes import PoolRef, wire_name
from gpu_control_plane.pools.decide import CardPlan
from gpu_control_plane.pools.ignored_requests import status_message


class _DeviceStatus(msgspec.Struct, rename=wire_name, kw_only=True):
    state: DeviceState
    pool_ref: PoolRef | UnsetType = UNSET
    reservation: Reservation | UnsetType = UNSET
    pending_reason: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    history: tuple[Change, ...] | UnsetType = UNSET


class DeviceApplyConfiguration(msgspec.Struct):
    status: _DeviceStatus

    @classmethod
    def of(cls, plan: CardPlan) -> "DeviceApplyConfiguration":
        pool = PoolRef(name=plan.pool) if plan.pool else UNSET
        return cls(
            _DeviceStatus(
                state=plan.state,
                pool_ref=pool,
                reservation=plan.reservation or UNSET,
                pending_reason=plan.pending or UNSET,
                message=status_message(plan.ignored) or UNSET,
                history=plan.history or UNSET,
            )
        )


class _Assignments(msgspec.Struct):
    assignments: tuple[Assignment, ...]
    """Also when empty: a spec whose last field is released becomes null, which the schema refuses."""


class AssignmentsApplyConfiguration(msgspec.Struct):
    spec: _Assignments

    @classmethod
    def of(cls, assignments: tuple[Assignment, ...]) -> "AssignmentsApplyConfiguration":
        return cls(_Assignments(assignments))


class _NodePoolsStatus(msgspec.Struct):
    pools: NodePools


class NodePoolsApplyConfiguration(msgspec.Struct):
    status: _NodePoolsStatus

    @classmethod
    def of(cls, pools: NodePools) -> "NodePoolsApplyConfiguration":
        return cls(_NodePoolsStatus(pools))


class PoolApplyConfiguration(msgspec.Struct):
    """The whole status: pools are its only writer."""

    status: PoolStatus
