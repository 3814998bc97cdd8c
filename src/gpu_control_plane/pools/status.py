"""What a pool says about itself. Pure: the pool, its cards and their nodes in, a status out."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import (
    MAX_WORST_NODES,
    Capacity,
    GPUPool,
    PoolNodes,
    PoolPhase,
    PoolStatus,
    Units,
    WorstNode,
)
from gpu_control_plane.api.names import DeviceCondition, PoolCondition, Reason
from gpu_control_plane.kube.conditions import condition, find
from gpu_control_plane.pools.rivals import Fault

_NOTHING = Units(total=0, used=0, reserved=0, available=0, faulted=0)


def pool_status(
    pool: GPUPool,
    cards: Iterable[GPUDevice],
    states: Mapping[str, GPUNodeState],
    fault: Fault | None,
    now: datetime,
) -> PoolStatus:
    """The status of a pool that holds `cards`. Units add up to the total once every node offers what it was told."""
    by_node: dict[str, list[GPUDevice]] = {}
    for card in cards:
        by_node.setdefault(card.spec.node_name, []).append(card)
    standings = [_stand(pool, node, held, states.get(node)) for node, held in sorted(by_node.items())]
    units = _NOTHING
    for standing in standings:
        units = _sum(units, standing.units)
    phase, ready, reason, message = _phase(pool, units, sum(standing.offered for standing in standings), fault)
    held = pool.status.conditions
    generation = pool.metadata.generation
    configured = (
        condition(held, PoolCondition.CONFIGURED, False, fault.reason, fault.message, generation=generation, now=now)
        if fault
        else condition(held, PoolCondition.CONFIGURED, True, Reason.CONFIGURED, generation=generation, now=now)
    )
    return PoolStatus(
        observed_generation=generation,
        phase=phase,
        units=units,
        capacity=(Capacity(name=pool.resource_name, **msgspec.structs.asdict(units)),),
        nodes=PoolNodes(
            total=len(standings),
            ready=sum(standing.worst is None for standing in standings),
            worst=_worst(standings),
        ),
        conditions=(
            configured,
            condition(held, PoolCondition.READY, ready, reason, message, generation=generation, now=now),
        ),
    )


class _NodeStanding(msgspec.Struct, frozen=True):
    units: Units
    offered: int
    worst: WorstNode | None


def _stand(pool: GPUPool, node: str, cards: list[GPUDevice], state: GPUNodeState | None) -> _NodeStanding:
    """One node's share of the pool. A unit counts once: as faulted, else used, else reserved, else available."""
    offered = _offered(pool, state)
    faulted = [card for card in cards if card.status.state is DeviceState.FAULTED]
    working = [card for card in cards if card.status.state is not DeviceState.FAULTED]
    used = [card for card in working if _used(pool, card)]
    reserved = [card for card in working if card.status.reservation is not None and card not in used]
    free = [card for card in working if card not in used and card not in reserved]
    available = [card for card in free if card.name in offered]
    units = Units(
        total=len(cards), used=len(used), reserved=len(reserved), available=len(available), faulted=len(faulted)
    )
    missing = [card for card in free if card.name not in offered]
    return _NodeStanding(units, len(used) + len(reserved) + len(available), _trouble(node, faulted, missing))


def _trouble(node: str, faulted: list[GPUDevice], missing: list[GPUDevice]) -> WorstNode | None:
    if not faulted and not missing:
        return None
    parts = [_fault_sentence(card) for card in faulted]
    if missing:
        parts.append(f"{len(missing)} ordered but not offered yet: is the agent on the node running?")
    reason = "Faulted" if faulted else "NotOffered"
    return WorstNode(name=node, cards=len(faulted) + len(missing), reason=reason, message="; ".join(parts)[:256])


def _fault_sentence(card: GPUDevice) -> str:
    health = find(card.status.conditions, DeviceCondition.HEALTHY)
    return f"{card.spec.pci_address}: {health.reason if health else 'Faulted'}"


def _worst(standings: list[_NodeStanding]) -> tuple[WorstNode, ...]:
    troubled = [standing.worst for standing in standings if standing.worst is not None]
    return tuple(sorted(troubled, key=lambda worst: (-worst.cards, worst.name))[:MAX_WORST_NODES])


def _phase(pool: GPUPool, units: Units, offered: int, fault: Fault | None) -> tuple[PoolPhase, bool, Reason, str]:
    if pool.deleting:
        return PoolPhase.PENDING, False, Reason.DELETING, f"waits until {units.total} cards are released"
    if fault is not None:
        return PoolPhase.MISCONFIGURED, False, fault.reason, fault.message
    if units.total == 0:
        return PoolPhase.PENDING, False, Reason.NO_CARDS, "no card is in the pool: approve cards that it selects"
    if offered == 0:
        return PoolPhase.PENDING, False, Reason.NOT_OFFERED, f"none of {units.total} cards is offered by its node"
    return PoolPhase.READY, True, Reason.CARDS_ON_OFFER, ""


def _offered(pool: GPUPool, state: GPUNodeState | None) -> frozenset[str]:
    """The cards that the node's agent offers as the pool's resource."""
    if state is None or state.status.plugin is None:
        return frozenset()
    names = pool.resource_names
    return frozenset(
        card for resource in state.status.plugin.resources if resource.name in names for card in resource.inventory_ids
    )


def _used(pool: GPUPool, card: GPUDevice) -> int:
    return sum(user.units for user in card.status.used_by if user.resource in pool.resource_names)


def _sum(one: Units, other: Units) -> Units:
    return Units(
        total=one.total + other.total,
        used=one.used + other.used,
        reserved=one.reserved + other.reserved,
        available=one.available + other.available,
        faulted=one.faulted + other.faulted,
    )
