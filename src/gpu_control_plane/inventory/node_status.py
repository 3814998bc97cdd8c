"""The part of a GPUNodeState's status that inventory writes, and what its conditions mean.

`Vanished` is a condition of its own since its transition time is the clock of the grace period: that of
`InventoryComplete` may have started long before, for another reason.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.gpunodestate import MAX_CARDS, NodeDevice, NodeStateStatus
from gpu_control_plane.api.identity import inventory_id
from gpu_control_plane.api.names import NodeCondition
from gpu_control_plane.api.nodefeature import NodeFacts
from gpu_control_plane.inventory.verdicts import Verdict
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import TRUE, condition, find

OWN_CONDITIONS: Final = frozenset({NodeCondition.INVENTORY_COMPLETE.value, NodeCondition.VANISHED.value})


def node_status(
    node: str,
    cards: Mapping[str, Hardware | None],
    facts: NodeFacts | None,
    verdict: Verdict,
    *,
    held: NodeStateStatus,
    now: datetime,
) -> NodeStateStatus:
    """What inventory says of a node with these cards; without `facts` the last known ones stay."""
    told = facts or held
    said = [_condition(held, NodeCondition.INVENTORY_COMPLETE, verdict, now, status=verdict.complete)]
    if verdict.vanished:
        said.append(_condition(held, NodeCondition.VANISHED, verdict, now, status=True))
    devices = tuple(_device(node, address, cards[address]) for address in sorted(cards)[:MAX_CARDS])
    return NodeStateStatus(
        device_count=len(devices),
        devices=devices,
        driver=told.driver,
        toolkit=told.toolkit,
        monitoring=told.monitoring,
        conditions=tuple(said),
    )


def own_share(status: NodeStateStatus) -> NodeStateStatus:
    """What of a status is inventory's: it is written when this differs from what should be."""
    return NodeStateStatus(
        device_count=status.device_count,
        devices=status.devices,
        driver=status.driver,
        toolkit=status.toolkit,
        monitoring=status.monitoring,
        conditions=tuple(held for held in status.conditions if held.type in OWN_CONDITIONS),
    )


def vanished_since(state: GPUNodeState | None) -> datetime | None:
    """Since when the node, or everything in it, has been gone, as far as that has been written down."""
    held = find(state.status.conditions, NodeCondition.VANISHED) if state is not None else None
    return held.last_transition_time if held is not None and held.status == TRUE else None


def _condition(
    held: NodeStateStatus, kind: NodeCondition, verdict: Verdict, now: datetime, *, status: bool
) -> Condition:
    return condition(held.conditions, kind.value, status, verdict.reason.value, verdict.message, now=now)


def _device(node: str, address: str, card: Hardware | None) -> NodeDevice:
    return NodeDevice(
        inventory_id=inventory_id(node, address),
        pci_address=address,
        uuid=card.uuid if card else None,
        product=card.product if card else None,
    )
