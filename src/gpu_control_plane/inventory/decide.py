"""What to do about one node: from what is seen of it to the writes that make its objects agree.

Nothing is deleted without proof. A card is gone when its node, which exists, reports all that its PCI bus shows and
the card is not among it. An empty bus is more often a broken report than an emptied machine, and a Node that is gone
may come back: both count as proof only when they have lasted for the grace period.
"""

from datetime import datetime, timedelta

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState, inventory_id
from gpu_control_plane.api.gpudevice import DeviceSpec, Hardware
from gpu_control_plane.api.gpunodestate import NodeStateStatus
from gpu_control_plane.api.names import Annotation, NodeCondition
from gpu_control_plane.api.nodefeature import NodeFacts, NodeFeature
from gpu_control_plane.inventory import events, node_status
from gpu_control_plane.inventory.labels import device_labels
from gpu_control_plane.inventory.node_status import Verdict
from gpu_control_plane.inventory.plan import (
    CardAction,
    CardWork,
    CreateNodeState,
    DeleteDevice,
    DeleteFeature,
    DeleteNodeState,
    DropApproval,
    NodeAction,
    Plan,
    WriteDevice,
    WriteHardware,
    WriteNodeStatus,
)
from gpu_control_plane.inventory.report import Report, Unreadable
from gpu_control_plane.inventory.sameness import is_another_card, what_is_known
from gpu_control_plane.kube import ObjectMeta
from gpu_control_plane.kube.conditions import find


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    node_grace_period: timedelta = timedelta(minutes=10)
    """How long a Node may be gone before its cards, and with them their approvals, are forgotten."""
    writes_at_once: int = 32
    """Writes under way at the same time, over all nodes."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a decision about a node rests on."""

    node: str
    node_exists: bool
    feature: NodeFeature | None
    report: Report | Unreadable | None
    """What the feature says; None where there is no feature."""
    devices: tuple[GPUDevice, ...]
    state: GPUNodeState | None
    now: datetime

    @property
    def known(self) -> dict[str, GPUDevice]:
        """The cards that have an object, by address. What is being deleted is no longer known."""
        return {device.spec.pci_address: device for device in self.devices if not device.deleting}

    @property
    def about(self) -> GPUNodeState:
        """What to speak of when the node is meant."""
        return self.state or GPUNodeState(metadata=ObjectMeta(name=self.node))


def decide(seen: Snapshot, settings: Settings) -> Plan:
    """The writes that make the objects of a node agree with it; none when they do."""
    if not seen.node_exists:
        return _without_node(seen, settings)
    match seen.report:
        case Report(facts=facts) as report if facts.bus_cards:
            return _with_cards(seen, report)
        case Report() as report:
            return _with_empty_bus(seen, report, settings)
        case Unreadable(why=why):
            return _keep(seen, node_status.invalid(why))
        case _:
            return _keep(seen, node_status.NODE_FEATURE_MISSING) if seen.state or seen.known else Plan()


def _with_cards(seen: Snapshot, report: Report) -> Plan:
    known = seen.known
    reported = {card.pci.address: card for card in report.cards}
    absent = [address for address in sorted(known) if address not in reported]
    leaving = absent if report.complete else []
    work = [_card(seen, card) for card in report.cards]
    work += [_removal(seen, known[address]) for address in leaving]
    verdict = node_status.all_known(report) if report.complete else node_status.cards_missing(report, absent)
    cards = {address: device.status.hardware for address, device in known.items() if address not in leaving}
    cards |= {address: _hardware(known.get(address), card) for address, card in reported.items()}
    return Plan(cards=_only_work(work), node=_node(seen, cards, report.facts, verdict))


def _with_empty_bus(seen: Snapshot, report: Report, settings: Settings) -> Plan:
    known = seen.known
    if not known:
        return Plan(node=_node(seen, {}, report.facts, node_status.no_cards(known=False)))
    left = _grace_left(seen, settings)
    if left > timedelta():
        return _keep(seen, node_status.no_cards(known=True), report.facts, again_in=left)
    return Plan(
        cards=tuple(_removal(seen, device) for device in known.values()),
        node=_node(seen, {}, report.facts, node_status.no_cards(known=False)),
    )


def _without_node(seen: Snapshot, settings: Settings) -> Plan:
    """The clock is in the object of the node, so that goes last: a crash on the way leaves an expired clock."""
    feature = (DeleteFeature(seen.feature),) if seen.feature is not None and not seen.feature.deleting else ()
    if seen.state is None and not seen.known:
        left = _age_left(seen.feature, seen.now, settings)
        return Plan(again_in=left) if feature and left > timedelta() else Plan(node=feature)
    left = _grace_left(seen, settings)
    if left > timedelta():
        return _keep(seen, node_status.NODE_GONE, again_in=left)
    going = seen.state is not None and not seen.state.deleting
    last = (DeleteNodeState(seen.about, events.forgotten(seen.node, len(seen.known))),) if going else ()
    cards = (CardWork(actions=(DeleteDevice(device, seen.about),)) for device in seen.known.values())
    return Plan(cards=tuple(cards), node=(*feature, *last))


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


def _card(seen: Snapshot, card: Hardware) -> CardWork:
    """The writes for a card that is there.

    An exchanged card loses the approval before anything else: until the new hardware is written the exchange is
    noticed again, whatever happens in between. Labels come before hardware, since selectors approve by them.
    """
    name = inventory_id(seen.node, card.pci.address)
    device = next((held for held in seen.devices if held.name == name), None)
    if device is not None and device.deleting:
        return CardWork(actions=())
    known = device.status.hardware if device is not None else None
    exchanged = is_another_card(known, card)
    hardware = _hardware(device, card)
    labels = device_labels(seen.node, hardware)
    actions: list[CardAction] = []
    approval = device.metadata.annotations.get(Annotation.ASSIGNMENT) if device is not None else None
    if exchanged and device is not None and approval is not None:
        actions.append(DropApproval(device))
    if device is None or any(device.metadata.labels.get(label) != value for label, value in labels.items()):
        actions.append(WriteDevice(name, DeviceSpec(node_name=seen.node, pci_address=card.pci.address), labels))
    if known is None:
        actions.append(WriteHardware(name, hardware, events.detected(hardware, seen.node)))
    elif hardware != known:
        actions.append(WriteHardware(name, hardware, events.replaced(known, card, approval) if exchanged else None))
    return CardWork(actions=tuple(actions), observed=device if exchanged else None)


def _hardware(device: GPUDevice | None, card: Hardware) -> Hardware:
    known = device.status.hardware if device is not None else None
    return card if is_another_card(known, card) else what_is_known(known, card)


def _removal(seen: Snapshot, device: GPUDevice) -> CardWork:
    approval = device.metadata.annotations.get(Annotation.ASSIGNMENT)
    return CardWork(actions=(DeleteDevice(device, seen.about, events.removed(device, approval)),))


def _only_work(work: list[CardWork]) -> tuple[CardWork, ...]:
    return tuple(one for one in work if one.actions)


def _node(
    seen: Snapshot, cards: dict[str, Hardware | None], facts: NodeFacts | None, verdict: Verdict
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
    told = find(status.conditions, kind)
    tell = events.inventory_changed(find(held.conditions, kind), told) if told is not None else None
    return (*creation, WriteNodeStatus(seen.node, status, tell))
