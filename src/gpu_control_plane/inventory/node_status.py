"""The part of a GPUNodeState's status that inventory writes, and what its conditions mean.

`Vanished` is a condition of its own since its transition time is the clock of the grace period: that of
`InventoryComplete` may have started long before, for another reason.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.gpunodestate import MAX_CARDS, NodeDevice, NodeStateStatus
from gpu_control_plane.api.identity import inventory_id
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.api.nodefeature import NodeFacts
from gpu_control_plane.inventory.report import Report
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import TRUE, condition, find

OWN_CONDITIONS: Final = frozenset({NodeCondition.INVENTORY_COMPLETE.value, NodeCondition.VANISHED.value})

_LONGEST: Final = 1024


class Verdict(msgspec.Struct, frozen=True):
    """Whether the inventory of a node is complete, and whether everything in it has vanished."""

    complete: bool
    reason: Reason
    message: str
    vanished: bool = False


NODE_FEATURE_MISSING: Final = Verdict(
    complete=False,
    reason=Reason.NODE_FEATURE_MISSING,
    message="The node does not report. See whether the agent runs on it.",
)
NODE_GONE: Final = Verdict(
    complete=False,
    reason=Reason.NODE_GONE,
    message="The Node is gone. If it does not come back within the grace period, its cards are forgotten.",
    vanished=True,
)


def no_cards(*, known: bool) -> Verdict:
    """The node reports an empty PCI bus. Where cards are known, that is doubted until it has lasted."""
    doubt = " If that lasts for the grace period, its cards are forgotten." if known else ""
    return Verdict(
        complete=False,
        reason=Reason.NO_DEVICES_DISCOVERED,
        message=f"The node reports no card.{doubt}",
        vanished=known,
    )


def invalid(why: str) -> Verdict:
    message = f"The report of the node makes no sense, so nothing is changed: {why}"
    return Verdict(complete=False, reason=Reason.NODE_FEATURE_INVALID, message=message[:_LONGEST])


def all_known(report: Report) -> Verdict:
    count = len(report.cards)
    message = "The card is known." if count == 1 else f"All {count} cards are known."
    return Verdict(complete=True, reason=Reason.INVENTORY_SYNCED, message=message)


def cards_missing(report: Report, absent: list[str]) -> Verdict:
    """The bus shows more than is reported; `absent` are the addresses of known cards among the missing."""
    where = f" Missing: {', '.join(absent)}." if absent else ""
    message = (
        f"The PCI bus shows {report.facts.bus_cards} cards, the node reports {len(report.cards)}.{where}"
        " See the log of its agent."
    )
    return Verdict(complete=False, reason=Reason.CARDS_MISSING, message=message)


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
