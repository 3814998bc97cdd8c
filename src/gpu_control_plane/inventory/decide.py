"""What to do about one node: from what is seen of it to the writes that make its objects agree.

Nothing is deleted without proof. A card is gone when its node, which exists, reports all that its PCI bus shows and
the card is not among it. An empty bus is more often a broken report than an emptied machine, and a Node that is gone
may come back: both count as proof only when they have lasted for the grace period.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.gpunodestate import NodeStateStatus
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.api.nodefeature import NodeFacts, NodeFeature
from gpu_control_plane.inventory import events, node_status, verdicts
from gpu_control_plane.inventory.bus import compare, with_places
from gpu_control_plane.inventory.cards import plan_cards, removal
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
from gpu_control_plane.inventory.snapshot import Elsewhere, Settings, Snapshot
from gpu_control_plane.inventory.verdicts import Verdict
from gpu_control_plane.kube.conditions import find, is_true


def decide(seen: Snapshot, settings: Settings) -> Plan:
    """The writes that make the objects of a node agree with it; none when they do."""
    if not seen.node_exists:
        return _without_node(seen, settings)
    match with_places(seen.report, seen.witnesses):
        case Report(facts=facts) as report if facts.bus_cards:
            return _with_cards(seen, report, settings)
        case Report(facts=facts, bus=None):
            return _keep(seen, verdicts.bus_hidden(seen.node), facts)
        case Report() as report:
            return _with_empty_bus(seen, report, settings)
        case Unreadable(why=why):
            return _keep(seen, verdicts.invalid(why))
        case _:
            return _without_report(seen, settings)


class _Judgement(msgspec.Struct, frozen=True):
    """A verdict, and how long it is held back."""

    verdict: Verdict
    left: timedelta | None = None


def _with_cards(seen: Snapshot, report: Report, settings: Settings) -> Plan:
    cards = plan_cards(seen, report)
    judged = _judge(seen, report, settings)
    return Plan(
        cards=cards.work,
        node=_node(seen, cards.after, report.facts, judged.verdict),
        again_in=judged.left,
        doubt=judged.left is not None,
    )


def _judge(seen: Snapshot, report: Report, settings: Settings) -> _Judgement:
    """Whether the cards of the node are all known, the surest doubt first."""
    compared = compare(seen.node, report, seen.known, seen.witnesses)
    if compared.short > 0:
        bus = len(report.bus) if report.bus is not None else report.facts.bus_cards
        shown = len(report.cards) - len(compared.strays)
        return _Judgement(verdicts.cards_missing(seen.node, bus, shown, compared.missing, compared.strays))
    if (claimed := _claimed_by_another(seen, report)) is not None:
        return _Judgement(claimed)
    good = verdicts.all_known(len(report.cards) + len(compared.ignored), compared.ignored)
    left = (seen.doubted_since or seen.now) + settings.bus_patience - seen.now
    patient = left > timedelta()
    if compared.strays or compared.differences:
        strays, differences = compared.strays, compared.differences
        doubt = verdicts.strays(seen.node, strays) if strays else verdicts.bus_disagrees(seen.node, differences)
        return _Judgement(good, left) if patient and _was_complete(seen) else _Judgement(doubt)
    told = _unanswered(seen)
    return _Judgement(told, left) if patient and told is not None else _Judgement(good)


def _unanswered(seen: Snapshot) -> Verdict | None:
    """The disagreement that was told, while whoever disagreed is silent: its worker restarts, or this process has not
    heard it yet. Silence takes nothing back unless it lasts."""
    held = find(seen.state.status.conditions, NodeCondition.INVENTORY_COMPLETE) if seen.state is not None else None
    if held is None or held.reason != Reason.BUS_DISAGREES or not seen.witnesses.awaited:
        return None
    return Verdict(complete=False, reason=Reason.BUS_DISAGREES, message=held.message)


def _claimed_by_another(seen: Snapshot, report: Report) -> Verdict | None:
    """The verdict if another node reports cards of this one, and its word is better: a kubelet that answers counts
    more than one that does not, and else whoever had the card first is believed."""
    claims: dict[str, Elsewhere] = {}
    for card in report.cards:
        other = seen.elsewhere.get(card.uuid) if card.uuid is not None else None
        if other is None or not other.exists:
            continue
        if (other.ready and not seen.node_ready) or (other.ready == seen.node_ready and other.senior):
            claims[f"{card.uuid} at {card.pci.address}"] = other
    if not claims:
        return None
    other = next(iter(claims.values()))
    return verdicts.elsewhere(seen.node, claims, other.node)


def _with_empty_bus(seen: Snapshot, report: Report, settings: Settings) -> Plan:
    known = seen.known
    if not known:
        return Plan(node=_node(seen, {}, report.facts, verdicts.no_cards(known=False)))
    left = _grace_left(seen, settings)
    if left > timedelta():
        return _keep(seen, verdicts.no_cards(known=True), report.facts, again_in=left)
    return Plan(
        cards=tuple(removal(seen, device) for device in known.values()),
        node=_node(seen, {}, report.facts, verdicts.no_cards(known=False)),
    )


def _without_report(seen: Snapshot, settings: Settings) -> Plan:
    """A node whose agent does not get as far as a report has an object that says so. One that is not said to have a
    card, and never showed one, needs none."""
    said = verdicts.silent(seen.node, seen.witnesses.cards)
    if seen.known or (seen.state is not None and seen.labelled):
        return _keep(seen, said)
    if seen.state is not None:
        return Plan() if seen.state.deleting else Plan(node=(DeleteNodeState(seen.state),))
    if seen.agent_since is None or not seen.labelled:
        return Plan()
    left = seen.agent_since + settings.report_patience - seen.now
    return Plan(again_in=left) if left > timedelta() else _keep(seen, said)


def _without_node(seen: Snapshot, settings: Settings) -> Plan:
    """The clock is in the object of the node, so that goes last: a crash on the way leaves an expired clock."""
    feature = (DeleteFeature(seen.feature),) if seen.feature is not None and not seen.feature.deleting else ()
    if seen.state is None and not seen.known:
        left = _age_left(seen.feature, seen.now, settings)
        return Plan(again_in=left) if feature and left > timedelta() else Plan(node=feature)
    heir = _heir(seen)
    left = _grace_left(seen, settings)
    if left > timedelta() and heir is None:
        return _keep(seen, verdicts.NODE_GONE, again_in=left)
    going = seen.state is not None and not seen.state.deleting
    told = events.forgotten(seen.node, len(seen.known), heir)
    last = (DeleteNodeState(seen.about, told),) if going else ()
    cards = (CardWork(actions=(DeleteDevice(device, seen.about),)) for device in seen.known.values())
    return Plan(cards=tuple(cards), node=(*feature, *last))


def _heir(seen: Snapshot) -> str | None:
    """The node that has every card of this one, which is gone: it was renamed, and nothing is waited for. Cards that
    only the bus showed are known by nothing that they could be found by."""
    others = {_other(seen, device) for device in seen.known.values() if device.status.hardware is not None}
    return next(iter(others)) if len(others) == 1 else None


def _other(seen: Snapshot, device: GPUDevice) -> str | None:
    hardware = device.status.hardware
    other = seen.elsewhere.get(hardware.uuid) if hardware is not None and hardware.uuid is not None else None
    return other.node if other is not None and other.exists else None


def _keep(seen: Snapshot, verdict: Verdict, facts: NodeFacts | None = None, again_in: timedelta | None = None) -> Plan:
    """Leave every card as it is and say why."""
    cards = {address: device.status.hardware for address, device in seen.known.items()}
    return Plan(node=_node(seen, cards, facts, verdict), again_in=again_in)


def _grace_left(seen: Snapshot, settings: Settings) -> timedelta:
    """What is left of the grace period. It begins when this is first asked, which the status then remembers."""
    since = node_status.vanished_since(seen.state) or seen.now
    return since + settings.node_grace_period - seen.now


def _age_left(feature: NodeFeature | None, now: datetime, settings: Settings) -> timedelta:
    """A report without a Node and without objects has no clock but its own age."""
    born = feature.metadata.creation_timestamp if feature is not None else None
    return (born or now) + settings.node_grace_period - now


def _was_complete(seen: Snapshot) -> bool:
    """Whether the node is said to be complete: only that may be doubted for a while, nothing is granted on a doubt."""
    return seen.state is not None and is_true(seen.state.status.conditions, NodeCondition.INVENTORY_COMPLETE)


def _node(
    seen: Snapshot, cards: Mapping[str, Hardware | None], facts: NodeFacts | None, verdict: Verdict
) -> tuple[NodeAction, ...]:
    """The writes for the object of the node. One that is being deleted is made anew once it is gone."""
    state = seen.state
    if state is not None and state.deleting:
        return ()
    held = state.status if state is not None else NodeStateStatus()
    status = node_status.node_status(seen.node, cards, facts, verdict, held=held, now=seen.now)
    creation = (CreateNodeState(seen.node),) if state is None else ()
    if status == node_status.own_share(held):
        return creation
    kind = NodeCondition.INVENTORY_COMPLETE
    before, told = find(held.conditions, kind), find(status.conditions, kind)
    tell = events.inventory_changed(before, told) if told is not None else None
    if before is None and verdict.complete:
        tell = events.first_cards((card.product or card.pci_address for card in status.devices), seen.node)
    return (*creation, WriteNodeStatus(seen.node, status, tell))
