"""The part of a GPUNodeState's status that inventory writes.

`Vanished` is a condition of its own because the grace period is counted from its transition time: `InventoryComplete`
may have become False long before, for another reason.
"""

from collections.abc import Mapping, Set
from datetime import datetime
from typing import Final

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.gpunodestate import MAX_CARDS, NodeDevice, NodeStateStatus, ObservedReport
from gpu_control_plane.api.identity import inventory_id
from gpu_control_plane.api.names import NodeCondition
from gpu_control_plane.api.nodefeature import NodeFacts
from gpu_control_plane.inventory.completeness import Completeness
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import TRUE, condition, find

OWN_CONDITIONS: Final = frozenset({NodeCondition.INVENTORY_COMPLETE.value, NodeCondition.VANISHED.value})


def node_status(
    node: str,
    cards: Mapping[str, Hardware | None],
    facts: NodeFacts | None,
    answer: Completeness,
    *,
    ignored: Set[str],
    observed: ObservedReport | None,
    held: NodeStateStatus,
    now: datetime,
) -> NodeStateStatus:
    """The status of a node with these cards, of which those at the addresses `ignored` are out of service. `observed`
    is the report that it rests on; without `facts` the last known ones stay."""
    software = facts or held
    conditions = [_condition(held, NodeCondition.INVENTORY_COMPLETE, answer, now, status=answer.complete)]
    if answer.vanished:
        conditions.append(_condition(held, NodeCondition.VANISHED, answer, now, status=True))
    devices = tuple(
        _device(node, address, cards[address], ignored=address in ignored) for address in sorted(cards)[:MAX_CARDS]
    )
    return NodeStateStatus(
        device_count=len(devices),
        devices=devices,
        observed_report=observed,
        driver=software.driver,
        toolkit=software.toolkit,
        monitoring=software.monitoring,
        agent=software.agent,
        conditions=tuple(conditions),
    )


def owned_fields(status: NodeStateStatus) -> NodeStateStatus:
    """The fields of a status that inventory owns: it writes when they differ from what they should be."""
    return NodeStateStatus(
        device_count=status.device_count,
        devices=status.devices,
        observed_report=status.observed_report,
        driver=status.driver,
        toolkit=status.toolkit,
        monitoring=status.monitoring,
        agent=status.agent,
        conditions=tuple(held for held in status.conditions if held.type in OWN_CONDITIONS),
    )


def vanished_since(state: GPUNodeState | None) -> datetime | None:
    """Since when the node, or every card in it, has been gone, by the condition Vanished."""
    held = find(state.status.conditions, NodeCondition.VANISHED) if state is not None else None
    return held.last_transition_time if held is not None and held.status == TRUE else None


def _condition(
    held: NodeStateStatus, kind: NodeCondition, answer: Completeness, now: datetime, *, status: bool
) -> Condition:
    return condition(held.conditions, kind.value, status, answer.reason.value, answer.message, now=now)


def _device(node: str, address: str, card: Hardware | None, *, ignored: bool) -> NodeDevice:
    return NodeDevice(
        inventory_id=inventory_id(node, address),
        pci_address=address,
        uuid=card.uuid if card else None,
        product=card.product if card else None,
        ignored=ignored or None,
    )
