"""A model of one node and its objects: each action of a plan is the change that the real request makes."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState, inventory_id
from gpu_control_plane.api.examples import h200
from gpu_control_plane.api.gpuapproval import ApprovalSpec, ApprovalStatus, GPUApproval
from gpu_control_plane.api.gpudevice import PCI, Hardware
from gpu_control_plane.api.gpunodestate import Driver, Injection, Toolkit
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.api.nodefeature import NodeFacts, NodeFeature, NodeFeatureSpec, feature_name, node_feature
from gpu_control_plane.inventory.bus import BusSources
from gpu_control_plane.inventory.decide import decide
from gpu_control_plane.inventory.plan import (
    CardAction,
    CarryOver,
    CreateNodeState,
    DeleteApproval,
    DeleteDevice,
    DeleteFeature,
    DeleteNodeState,
    DropApproval,
    NodeAction,
    Plan,
    WriteApprovalMessage,
    WriteDevice,
    WriteHardware,
    WriteNodeStatus,
)
from gpu_control_plane.inventory.report import read_report
from gpu_control_plane.inventory.snapshot import DuplicateUUID, Settings, Snapshot
from gpu_control_plane.kube import ObjectMeta

NODE = "worker-3"
SETTINGS = Settings(node_grace_period=timedelta(minutes=10))
FACTS = NodeFacts(bus_cards=0, driver=Driver(version="580"), toolkit=Toolkit(injection=Injection.CDI))


def card(index: int = 0, uuid: str | None = "GPU-first", **changes: object) -> Hardware:
    return msgspec.structs.replace(h200(NODE, index, 1), uuid=uuid, **changes)


def bare(index: int = 0, device: str = "2335") -> Hardware:
    """A card as the bus shows it, without a driver."""
    known = card(index)
    pci = msgspec.structs.replace(known.pci, device=device)
    return Hardware(vendor=known.vendor, product="GH100", pci=pci)


class NodeModel:
    """What exists. `time` moves only when a test moves it."""

    def __init__(self) -> None:
        self.time = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
        self.node_exists = True
        self.node_ready = True
        self.agent_expected = False
        self.agent_pod_since: datetime | None = None
        self.bus_sources = BusSources()
        self.duplicates: dict[str, DuplicateUUID] = {}
        self.disagreement_since: datetime | None = None
        self.feature: NodeFeature | None = None
        self.features_made = 0
        self.devices: dict[str, GPUDevice] = {}
        self.approvals: dict[str, GPUApproval] = {}
        self.state: GPUNodeState | None = None
        self.events: list[str] = []
        """Reasons of the Events that were written."""

    def report(
        self,
        *cards: Hardware,
        bus: int | None = None,
        facts: NodeFacts = FACTS,
        places: tuple[PCI, ...] | None = None,
    ) -> None:
        """The agent reports these cards. `places` are the cards it sees on the bus, by default the reported ones.
        With `bus` alone it may not read the addresses and knows only how many cards there are."""
        if places is None and bus is None:
            places = tuple(one.pci for one in cards)
        count = len(cards) if bus is None else bus
        facts = msgspec.structs.replace(facts, bus_cards=max(count, len(places or ())), bus=places)
        self.publish(node_feature(NODE, facts, cards))

    def publish(self, spec: NodeFeatureSpec) -> None:
        """Write the NodeFeature as the API server would: a change of the spec is a new generation."""
        if self.feature is None:
            self.features_made += 1
            uid = f"report-{self.features_made}"
            meta = ObjectMeta(name=feature_name(NODE), uid=uid, generation=1, creation_timestamp=self.time)
            self.feature = NodeFeature(metadata=meta, spec=spec)
        elif spec != self.feature.spec:
            meta = msgspec.structs.replace(self.feature.metadata, generation=self.feature.metadata.generation + 1)
            self.feature = NodeFeature(metadata=meta, spec=spec)

    def approve(self, address: str, pool: str = "training") -> None:
        device = self.at(address)
        self._annotate(device.name, {**device.metadata.annotations, Annotation.ASSIGNMENT.value: pool})

    def approve_beforehand(self, address: str, uuid: str, **decided: Any) -> None:
        """A GPUApproval of a card that may not be there."""
        name = inventory_id(NODE, address)
        spec = ApprovalSpec(node_name=NODE, pci_address=address, uuid=uuid, **decided)
        self.approvals[name] = GPUApproval(metadata=ObjectMeta(name=name, uid=name), spec=spec)

    def ignore(self, address: str, value: str = "true") -> None:
        self._label(self.at(address).name, {Label.IGNORE.value: value})

    def approval(self, address: str) -> str | None:
        return self.at(address).metadata.annotations.get(Annotation.ASSIGNMENT)

    def at(self, address: str) -> GPUDevice:
        return next(device for device in self.devices.values() if device.spec.pci_address == address)

    @property
    def addresses(self) -> set[str]:
        return {device.spec.pci_address for device in self.devices.values()}

    def snapshot(self) -> Snapshot:
        return Snapshot(
            node=NODE,
            node_exists=self.node_exists,
            node_ready=self.node_ready,
            agent_expected=self.agent_expected,
            agent_pod_since=self.agent_pod_since,
            bus_sources=self.bus_sources,
            duplicates=self.duplicates,
            disagreement_since=self.disagreement_since,
            feature=self.feature,
            report=read_report(NODE, self.feature) if self.feature is not None else None,
            devices=tuple(self.devices.values()),
            approvals=tuple(self.approvals.values()),
            state=self.state,
            now=self.time,
        )

    def plan(self) -> Plan:
        return decide(self.snapshot(), SETTINGS)

    def settle(self) -> Plan:
        """Reconcile until nothing is left to do now; the last plan may ask to be called again later."""
        for _ in range(5):
            plan = self.plan()
            self.disagreement_since = (self.disagreement_since or self.time) if plan.bus_disagrees else None
            if plan.settled:
                return plan
            for action in actions(plan):
                self.execute(action)
        raise AssertionError(f"does not come to rest: {self.plan()}")

    def execute(self, action: CardAction | NodeAction) -> None:
        if (event := getattr(action, "event", None)) is not None and event.emit:
            self.events.append(event.reason)
        match action:
            case DropApproval(device=device):
                kept = {k: v for k, v in device.metadata.annotations.items() if k != Annotation.ASSIGNMENT}
                self._annotate(device.name, kept)
            case CarryOver(name=name, annotations=annotations, labels=labels):
                meta = self.devices[name].metadata
                carried = {**meta.annotations, **annotations}
                self._annotate(name, {key: value for key, value in carried.items() if value is not None})
                self._label(name, labels)
            case WriteDevice(name=name, spec=spec, labels=labels):
                self.devices.setdefault(name, GPUDevice(metadata=ObjectMeta(name=name, uid=name), spec=spec))
                self._label(name, labels)
            case WriteHardware(name=name, hardware=hardware):
                held = self.devices[name]
                status = msgspec.structs.replace(held.status, hardware=hardware)
                self.devices[name] = msgspec.structs.replace(held, status=status)
            case DeleteDevice(device=device):
                self.devices.pop(device.name, None)
            case DeleteApproval() | WriteApprovalMessage():
                self._settle_approval(action)
            case CreateNodeState(name=name):
                self.state = self.state or GPUNodeState(metadata=ObjectMeta(name=name))
            case WriteNodeStatus(status=status):
                assert self.state is not None
                self.state = msgspec.structs.replace(self.state, status=status)
            case DeleteNodeState():
                self.state = None
            case DeleteFeature():
                self.feature = None

    def _settle_approval(self, action: DeleteApproval | WriteApprovalMessage) -> None:
        if isinstance(action, DeleteApproval):
            self.approvals.pop(action.approval.name, None)
            return
        told = ApprovalStatus(message=action.message)
        self.approvals[action.name] = msgspec.structs.replace(self.approvals[action.name], status=told)

    def copy(self) -> "NodeModel":
        """Objects are frozen, so copying the containers is enough."""
        made = NodeModel()
        approvals = dict(self.approvals)
        made.__dict__.update(self.__dict__, devices=dict(self.devices), approvals=approvals, events=list(self.events))
        return made

    @property
    def objects(self) -> tuple[object, ...]:
        return self.devices, self.approvals, self.state, self.feature

    def _label(self, name: str, labels: dict[str, str]) -> None:
        held = self.devices[name]
        meta = msgspec.structs.replace(held.metadata, labels={**held.metadata.labels, **labels})
        self.devices[name] = msgspec.structs.replace(held, metadata=meta)

    def _annotate(self, name: str, annotations: dict[str, str]) -> None:
        held = self.devices[name]
        meta = msgspec.structs.replace(held.metadata, annotations=annotations)
        self.devices[name] = msgspec.structs.replace(held, metadata=meta)


def actions(plan: Plan) -> Iterator[CardAction | NodeAction]:
    """The actions of a plan, in one of the orders in which they may be executed."""
    for work in plan.cards:
        for step in work.steps:
            yield from step.actions
    yield from plan.node
