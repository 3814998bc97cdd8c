"""What is the matter with a pool, a card or a node: what its own object says, in sentences. Pure."""

from collections.abc import Iterable, Iterator

import msgspec

from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import DeviceCondition, NodeCondition
from gpu_control_plane.kube.conditions import FALSE, TRUE, find
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.pools.pending_reasons import PendingReason

_FINE_WHEN_FALSE = frozenset(
    {
        NodeCondition.VANISHED,
        NodeCondition.DRIVER_MISSING,
        NodeCondition.TOOLKIT_MISSING,
        NodeCondition.MONITORING_MISSING,
        NodeCondition.DEGRADED,
    }
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing worth knowing."""

    fine: bool
    sentence: str


def explain_pool(pool: GPUPool) -> tuple[Finding, ...]:
    return tuple(_of_pool(pool))


def explain_device(device: GPUDevice) -> tuple[Finding, ...]:
    """What a card does, or why it is in no pool."""
    return tuple(_of_device(device))


def explain_node(state: GPUNodeState) -> tuple[Finding, ...]:
    return tuple(_of_node(state))


def _of_pool(pool: GPUPool) -> Iterator[Finding]:
    status = pool.status
    yield from _of_conditions(status.conditions)
    for units in status.capacity:
        parts = f"{units.available} free, {units.used} in use, {units.reserved} promised, {units.faulted} faulted"
        offered = units.available + units.used + units.reserved + units.faulted
        missing = f", {units.total - offered} not offered" if units.total > offered else ""
        yield Finding(fine=not units.faulted and not missing, sentence=f"{units.name}: {parts}{missing}")
    for waiting in status.cards.waiting if status.cards is not None else ():
        because = PendingReason(waiting.reason).because
        yield Finding(fine=False, sentence=f"{counted(waiting.cards, 'card')} not in the pool: {because}")
    for node in status.nodes.worst if status.nodes is not None else ():
        yield Finding(fine=False, sentence=f"node {node.name}, {counted(node.cards, 'card')}: {node.message}")


def _of_device(device: GPUDevice) -> Iterator[Finding]:
    status = device.status
    if status.pool_ref is not None:
        words = f"it is in the pool {status.pool_ref.name}: {status.state or 'no state yet'}"
        yield Finding(fine=status.state is not DeviceState.FAULTED, sentence=words)
    else:
        reason = PendingReason(status.pending_reason).because if status.pending_reason else "no controller has said why"
        yield Finding(fine=False, sentence=f"it is in no pool: {reason}")
    if status.message:
        yield Finding(fine=False, sentence=status.message)
    if find(status.conditions, DeviceCondition.HEALTHY) is None:
        yield Finding(fine=False, sentence="its agent has not said yet whether it works")
    yield from _of_conditions(status.conditions)
    for user in status.used_by:
        yield Finding(
            fine=True, sentence=f"{user.namespace}/{user.pod} ({user.container}) holds {counted(user.units, 'unit')}"
        )


def _of_node(state: GPUNodeState) -> Iterator[Finding]:
    status = state.status
    if find(status.conditions, NodeCondition.READY_FOR_POOLING) is None:
        yield Finding(fine=False, sentence="nothing is known yet about the software of the node")
    yield from _of_conditions(status.conditions)
    for problem in status.plugin.problems if status.plugin is not None else ():
        yield Finding(fine=False, sentence=f"card {problem.inventory_id}: {problem.message}")
    for resource in status.plugin.resources if status.plugin is not None else ():
        words = f"it offers {counted(resource.healthy, 'unit')} of {resource.name}"
        broken = resource.units - resource.healthy
        yield Finding(fine=not broken, sentence=f"{words}, and {broken} more that cannot be used" if broken else words)
    for card in status.pools.pending if status.pools is not None else ():
        because = PendingReason(card.reason).because if card.reason else "no reason is known"
        yield Finding(fine=False, sentence=f"card {card.inventory_id} is in no pool: {because}")


def _of_conditions(conditions: Iterable[Condition]) -> Iterator[Finding]:
    """The conditions that are not as they should be, and those that are."""
    for said in conditions:
        fine = said.status == (FALSE if said.type in _FINE_WHEN_FALSE else TRUE)
        message = f": {said.message}" if said.message else ""
        yield Finding(fine=fine, sentence=f"{said.type} is {said.status} ({said.reason}){message}")
