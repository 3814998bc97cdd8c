"""What to write about one node, so that its objects agree with what is known of it. Pure.

Nothing is deleted without proof. A card is gone when its node exists and reports all that its PCI bus shows, and the
card is not among it. An empty bus is more often a broken report than an emptied machine, and a Node that is gone may
come back: both count as proof only when they have lasted for the grace period.
"""

from collections.abc import Mapping, Set
from datetime import datetime, timedelta

import msgspec

from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.gpunodestate import NodeStateStatus, ObservedReport
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.api.nodefeature import NodeFacts, NodeFeature
from gpu_control_plane.inventory import completeness, events, node_status
from gpu_control_plane.inventory.approvals import messages
from gpu_control_plane.inventory.bus import Comparison, compare, with_discovered_bus
from gpu_control_plane.inventory.cards import ignored_cards, plan_cards, removal
from gpu_control_plane.inventory.completeness import Completeness
from gpu_control_plane.inventory.identity import uuid_of
from gpu_control_plane.inventory.plan import (
    CardWork,
    CreateNodeState,
    DeleteDevice,
    DeleteFeature,
    DeleteNodeState,
    NodeAction,
    Plan,
    WriteNodeStatus,
)
from gpu_control_plane.inventory.report import Report, Unreadable
from gpu_control_plane.inventory.snapshot import DuplicateUUID, Settings, Snapshot
from gpu_control_plane.kube.conditions import find, is_true


def decide(snapshot: Snapshot, settings: Settings) -> Plan:
    """The writes that make the objects of a node agree with it; none when they do."""
    if not snapshot.node_exists:
        return _without_node(snapshot, settings)
    match with_discovered_bus(snapshot.report, snapshot.bus_sources):
        case Report(facts=facts) as report if facts.bus_cards:
            return _with_cards(snapshot, report, settings)
        case Report(facts=facts, bus=None):
            return _keep(snapshot, completeness.bus_hidden(snapshot.node), facts)
        case Report() as report:
            return _with_empty_bus(snapshot, report, settings)
        case Unreadable(why=why):
            return _keep(snapshot, completeness.invalid_report(why))
        case _:
            return _without_report(snapshot, settings)


class _Answer(msgspec.Struct, frozen=True):
    """What is written as InventoryComplete, and for how much longer it stands while the bus disagrees with it."""

    completeness: Completeness
    left: timedelta | None = None


def _with_cards(snapshot: Snapshot, report: Report, settings: Settings) -> Plan:
    cards = plan_cards(snapshot, report)
    answer = _answer(snapshot, report, settings)
    return Plan(
        cards=cards.work,
        node=(
            *_node(snapshot, cards.after, report.facts, answer.completeness, ignored=cards.ignored),
            *messages(snapshot, report),
        ),
        again_in=answer.left,
        bus_disagrees=answer.left is not None,
    )


def _answer(snapshot: Snapshot, report: Report, settings: Settings) -> _Answer:
    """Whether all cards of the node are known. What is certain comes before what may change by itself."""
    compared = compare(snapshot.node, report, snapshot.known, snapshot.bus_sources)
    if compared.missing_count > 0:
        bus = len(report.bus) if report.bus is not None else report.facts.bus_cards
        shown = len(report.cards) - len(compared.off_bus)
        return _Answer(completeness.cards_missing(snapshot.node, bus, shown, compared.missing, compared.off_bus))
    if (claimed := _claimed_by_another(snapshot, report)) is not None:
        return _Answer(claimed)
    complete = completeness.complete(len(report.cards) + len(compared.ignored), compared.ignored)
    left = (snapshot.disagreement_since or snapshot.now) + settings.bus_disagreement_timeout - snapshot.now
    recent = left > timedelta()
    if compared.off_bus or compared.differences:
        disagrees = _disagreement(snapshot.node, settings.namespace, compared)
        return _Answer(complete, left) if recent and _was_complete(snapshot) else _Answer(disagrees)
    held = _unanswered_disagreement(snapshot)
    return _Answer(held, left) if recent and held is not None else _Answer(complete)


def _disagreement(node: str, namespace: str, compared: Comparison) -> Completeness:
    if compared.off_bus:
        return completeness.cards_off_bus(node, compared.off_bus)
    return completeness.bus_disagrees(node, namespace, compared.differences)


def _unanswered_disagreement(snapshot: Snapshot) -> Completeness | None:
    """The disagreement that the status shows, while Node Feature Discovery publishes nothing about the node: its
    worker restarts, or this process has not read it yet. Silence withdraws nothing unless it lasts."""
    conditions = snapshot.state.status.conditions if snapshot.state is not None else ()
    held = find(conditions, NodeCondition.INVENTORY_COMPLETE)
    if held is None or held.reason != Reason.BUS_DISAGREES or not snapshot.bus_sources.nfd_awaited:
        return None
    return Completeness(complete=False, reason=Reason.BUS_DISAGREES, message=held.message)


def _claimed_by_another(snapshot: Snapshot, report: Report) -> Completeness | None:
    """The answer if another node reports cards of this one and is believed: of two nodes the one whose kubelet
    answers, and if that is the same for both, the one that had the card first."""
    claims: dict[str, DuplicateUUID] = {}
    for card in report.cards:
        other = snapshot.duplicates.get(card.uuid) if card.uuid is not None else None
        if other is None or not other.exists:
            continue
        if (other.ready and not snapshot.node_ready) or (other.ready == snapshot.node_ready and other.older):
            claims[f"{card.uuid} at {card.pci.address}"] = other
    if not claims:
        return None
    other = next(iter(claims.values()))
    return completeness.duplicate_uuids(snapshot.node, claims, other.node)


def _with_empty_bus(snapshot: Snapshot, report: Report, settings: Settings) -> Plan:
    known = snapshot.known
    if not known:
        return Plan(node=_node(snapshot, {}, report.facts, completeness.no_cards(known=False)))
    left = _grace_left(snapshot, settings)
    if left > timedelta():
        return _keep(snapshot, completeness.no_cards(known=True), report.facts, again_in=left)
    return Plan(
        cards=tuple(removal(snapshot, device) for device in known.values()),
        node=_node(snapshot, {}, report.facts, completeness.no_cards(known=False)),
    )


def _without_report(snapshot: Snapshot, settings: Settings) -> Plan:
    """A node whose agent runs and does not report has a GPUNodeState that says so. A node that no label brings the
    agent to, and that never reported a card, needs none."""
    answer = completeness.no_report(snapshot.node, settings.namespace, snapshot.bus_sources.cards)
    if snapshot.known or (snapshot.state is not None and snapshot.agent_expected):
        return _keep(snapshot, answer)
    if snapshot.state is not None:
        return Plan() if snapshot.state.deleting else Plan(node=(DeleteNodeState(snapshot.state),))
    if snapshot.agent_pod_since is None or not snapshot.agent_expected:
        return Plan()
    left = snapshot.agent_pod_since + settings.first_report_timeout - snapshot.now
    return Plan(again_in=left) if left > timedelta() else _keep(snapshot, answer)


def _without_node(snapshot: Snapshot, settings: Settings) -> Plan:
    """The grace period is counted from a condition of the GPUNodeState, so that is deleted last: after a crash on the
    way the next process finds an expired period."""
    held = snapshot.feature
    feature = (DeleteFeature(held),) if held is not None and not held.deleting else ()
    if snapshot.state is None and not snapshot.known:
        left = _age_left(held, snapshot.now, settings)
        return Plan(again_in=left) if feature and left > timedelta() else Plan(node=feature)
    renamed_to = _renamed_to(snapshot)
    left = _grace_left(snapshot, settings)
    if left > timedelta() and renamed_to is None:
        return _keep(snapshot, completeness.NODE_GONE, again_in=left)
    event = events.forgotten(snapshot.node, len(snapshot.known), renamed_to)
    exists = snapshot.state is not None and not snapshot.state.deleting
    last = (DeleteNodeState(snapshot.about, event),) if exists else ()
    cards = (CardWork(actions=(DeleteDevice(device, snapshot.about),)) for device in snapshot.known.values())
    return Plan(cards=tuple(cards), node=(*feature, *last))


def _renamed_to(snapshot: Snapshot) -> str | None:
    """The node that has every card of this one, whose Node is gone: the machine was renamed, and the grace period need
    not pass. Cards that only the bus showed have no UUID and are left out."""
    others = {_other_node(snapshot, device) for device in snapshot.known.values() if device.status.hardware is not None}
    return next(iter(others)) if len(others) == 1 else None


def _other_node(snapshot: Snapshot, device: GPUDevice) -> str | None:
    uuid = uuid_of(device)
    other = snapshot.duplicates.get(uuid) if uuid is not None else None
    return other.node if other is not None and other.exists else None


def _keep(
    snapshot: Snapshot, answer: Completeness, facts: NodeFacts | None = None, again_in: timedelta | None = None
) -> Plan:
    """Leave every card as it is and write why."""
    cards = {address: device.status.hardware for address, device in snapshot.known.items()}
    node = _node(snapshot, cards, facts, answer, ignored=ignored_cards(snapshot.known))
    return Plan(node=node, again_in=again_in)


def _grace_left(snapshot: Snapshot, settings: Settings) -> timedelta:
    """What is left of the grace period. It begins when this is first asked, which the status then records."""
    since = node_status.vanished_since(snapshot.state) or snapshot.now
    return since + settings.node_grace_period - snapshot.now


def _age_left(feature: NodeFeature | None, now: datetime, settings: Settings) -> timedelta:
    """A report without a Node and without objects has no clock but its own age."""
    created = feature.metadata.creation_timestamp if feature is not None else None
    return (created or now) + settings.node_grace_period - now


def _was_complete(snapshot: Snapshot) -> bool:
    """Whether the status calls the node complete. Only that may stand for a while against a disagreement: a node that
    was not complete gets no card before all sources agree."""
    state = snapshot.state
    return state is not None and is_true(state.status.conditions, NodeCondition.INVENTORY_COMPLETE)


def _node(
    snapshot: Snapshot,
    cards: Mapping[str, Hardware | None],
    facts: NodeFacts | None,
    answer: Completeness,
    *,
    ignored: Set[str] = frozenset(),
) -> tuple[NodeAction, ...]:
    """The writes for the GPUNodeState. One that is being deleted is created again once it is gone."""
    state = snapshot.state
    if state is not None and state.deleting:
        return ()
    held = state.status if state is not None else NodeStateStatus()
    status = node_status.node_status(
        snapshot.node,
        cards,
        facts,
        answer,
        ignored=ignored,
        observed=_observed_report(snapshot, held),
        held=held,
        now=snapshot.now,
    )
    creation = (CreateNodeState(snapshot.node),) if state is None else ()
    if status == node_status.owned_fields(held):
        return creation
    kind = NodeCondition.INVENTORY_COMPLETE
    before, after = find(held.conditions, kind), find(status.conditions, kind)
    event = events.inventory_changed(before, after) if after is not None else None
    if before is None and answer.complete:
        event = events.first_cards((card.product or card.pci_address for card in status.devices), snapshot.node)
    return (*creation, WriteNodeStatus(snapshot.node, status, event))


def _observed_report(snapshot: Snapshot, held: NodeStateStatus) -> ObservedReport | None:
    """The report that the status rests on, also if it makes no sense: then the condition says so. While the Node is
    gone no report is read."""
    if not snapshot.node_exists:
        return held.observed_report
    return ObservedReport.of(snapshot.feature.metadata) if snapshot.feature is not None else None
