"""The capacity of a pool, kept node by node, so that a change on one node costs the work of one node.

Counting 40,000 cards anew for every change would stop the event loop for a fifth of a second each time.
"""

from collections.abc import Iterable

import msgspec

from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import MAX_WORST_NODES, GPUPool, Units, WorstNode
from gpu_control_plane.api.names import DeviceCondition
from gpu_control_plane.kube.conditions import find

_FIELDS = Units.__struct_fields__


class NodeCapacity(msgspec.Struct, frozen=True):
    """What one node contributes to a pool."""

    units: Units
    offered: int
    """Units that pods have or could have."""
    trouble: WorstNode | None


class PoolCapacity:
    """The sum over the nodes of a pool."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeCapacity] = {}
        self._troubled: dict[str, WorstNode] = {}
        self._sums = dict.fromkeys(_FIELDS, 0)
        self.offered = 0

    def put(self, node: str, capacity: NodeCapacity | None) -> None:
        """What a node contributes now; None when it has no card of the pool any more."""
        self._add(self._nodes.pop(node, None), -1)
        self._troubled.pop(node, None)
        if capacity is not None:
            self._nodes[node] = capacity
            self._add(capacity, +1)
            if capacity.trouble is not None:
                self._troubled[node] = capacity.trouble

    @property
    def units(self) -> Units:
        return Units(**self._sums)

    @property
    def nodes(self) -> int:
        return len(self._nodes)

    @property
    def ready(self) -> int:
        return len(self._nodes) - len(self._troubled)

    @property
    def worst(self) -> tuple[WorstNode, ...]:
        """The nodes most in need of attention, worst first."""
        return tuple(sorted(self._troubled.values(), key=lambda node: (-node.cards, node.name))[:MAX_WORST_NODES])

    def _add(self, capacity: NodeCapacity | None, sign: int) -> None:
        if capacity is None:
            return
        for field in _FIELDS:
            self._sums[field] += sign * getattr(capacity.units, field)
        self.offered += sign * capacity.offered


def node_capacity(
    pool: GPUPool, node: str, cards: Iterable[GPUDevice], state: GPUNodeState | None
) -> NodeCapacity | None:
    """What a node contributes that has these cards of the pool; None for no cards.

    A unit counts once: as faulted, else used, else reserved, else available. A unit that is none of these was ordered
    and is not offered yet.
    """
    offered = _offered(pool, state)
    names = pool.resource_names
    total, used, reserved, available = 0, 0, 0, 0
    faulted: list[GPUDevice] = []
    missing = 0
    for card in cards:
        total += 1
        if card.status.state is DeviceState.FAULTED:
            faulted.append(card)
        elif any(user.resource in names for user in card.status.used_by):
            used += 1
        elif card.status.reservation is not None:
            reserved += 1
        elif card.name in offered:
            available += 1
        else:
            missing += 1
    if total == 0:
        return None
    units = Units(total=total, used=used, reserved=reserved, available=available, faulted=len(faulted))
    return NodeCapacity(units, used + reserved + available, _trouble(node, faulted, missing))


def _trouble(node: str, faulted: list[GPUDevice], missing: int) -> WorstNode | None:
    if not faulted and not missing:
        return None
    parts = [_fault(card) for card in faulted]
    if missing:
        parts.append(f"{missing} ordered but not offered yet: is the agent on the node running?")
    reason = "Faulted" if faulted else "NotOffered"
    return WorstNode(name=node, cards=len(faulted) + missing, reason=reason, message="; ".join(parts)[:256])


def _fault(card: GPUDevice) -> str:
    health = find(card.status.conditions, DeviceCondition.HEALTHY)
    return f"{card.spec.pci_address}: {health.reason if health else 'Faulted'}"


def _offered(pool: GPUPool, state: GPUNodeState | None) -> frozenset[str]:
    """The cards that the node's agent offers as the pool's resource."""
    if state is None or state.status.plugin is None:
        return frozenset()
    names = pool.resource_names
    return frozenset(
        card for resource in state.status.plugin.resources if resource.name in names for card in resource.inventory_ids
    )
