"""What a joining node costs in writes, by the decisions of inventory and bootstrap: prepared, to be sent by anybody."""

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.agent.publish import publication
from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.examples import h200
from gpu_control_plane.api.gpunodestate import Driver, Injection, Monitoring, MonitoringSource, Toolkit
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import (
    NodeFacts,
    NodeFeature,
    NodeFeatureSpec,
    feature_name,
    node_feature,
)
from gpu_control_plane.bootstrap import decide as bootstrap
from gpu_control_plane.bootstrap import snapshot as of_bootstrap
from gpu_control_plane.inventory import decide as inventory
from gpu_control_plane.inventory import snapshot as of_inventory
from gpu_control_plane.inventory.plan import CreateNodeState, WriteDevice, WriteHardware, WriteNodeStatus
from gpu_control_plane.inventory.report import read_report
from gpu_control_plane.kube import Client, FieldManager, Object, ObjectMeta
from gpu_control_plane.kube.times import utc_now

_FACTS = NodeFacts(
    bus_cards=0,
    driver=Driver(version="580.159.04", cuda_version="13.0"),
    toolkit=Toolkit(injection=Injection.CDI),
    monitoring=Monitoring(source=MonitoringSource.AGENT),
)
_STATUS = "status"


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One request, ready to be sent."""

    kind: type[Object]
    name: str
    body: object
    manager: str
    namespace: str | None = None
    subresource: str | None = None

    async def send(self, client: Client) -> None:
        await client.apply(
            self.kind,
            self.name,
            self.body,
            manager=FieldManager(self.manager),
            namespace=self.namespace,
            subresource=self.subresource,
        )


def fewest(cards: int) -> int:
    """Writes that a node cannot do without: a status is written apart from its object, and bootstrap's share of a
    node's apart from inventory's."""
    return 2 * cards + 3


def report(node: Node, cards: int) -> Write:
    """What the agent of a node publishes."""
    spec = publication(node, _spec(node.name, cards))
    name = feature_name(node.name)
    return Write(kind=NodeFeature, name=name, body=spec, manager="gpu-agent", namespace=NAMESPACE)


def consequences(node: str, cards: int) -> list[tuple[Write, ...]]:
    """What comes of a report: a chain of writes for each card, then one for the node."""
    feature = NodeFeature(metadata=ObjectMeta(name=feature_name(node)), spec=_spec(node, cards))
    seen = of_inventory.Snapshot(
        node=node,
        node_exists=True,
        feature=feature,
        report=read_report(node, feature),
        devices=(),
        state=None,
        now=utc_now(),
    )
    plan = inventory.decide(seen, of_inventory.Settings())
    chains = [tuple(_inventory(action) for action in work.actions) for work in plan.cards]
    of_node = tuple(_inventory(action) for action in plan.node)
    (status,) = (action.status for action in plan.node if isinstance(action, WriteNodeStatus))
    state = GPUNodeState(metadata=ObjectMeta(name=node), status=status)
    conditions = bootstrap.decide(of_bootstrap.Snapshot(state=state, now=seen.now)).conditions
    last = Write(
        kind=GPUNodeState,
        name=node,
        body={_STATUS: {"conditions": conditions}},
        manager="gpu-bootstrap",
        subresource=_STATUS,
    )
    return [*chains, (*of_node, last)]


def _inventory(action: object) -> Write:
    match action:
        case WriteDevice(name=name, spec=spec, labels=labels):
            return _write(GPUDevice, name, {"metadata": {"labels": labels}, "spec": spec})
        case WriteHardware(name=name, hardware=hardware):
            return _write(GPUDevice, name, {_STATUS: {"hardware": hardware}}, _STATUS)
        case CreateNodeState(name=name):
            return _write(GPUNodeState, name, {})
        case WriteNodeStatus(name=name, status=status):
            return _write(GPUNodeState, name, {_STATUS: status}, _STATUS)
    raise TypeError(f"a node that joins does not ask for {action}")


def _write(kind: type[Object], name: str, body: object, subresource: str | None = None) -> Write:
    return Write(kind=kind, name=name, body=body, manager="gpu-inventory", subresource=subresource)


def _spec(node: str, cards: int) -> NodeFeatureSpec:
    there = tuple(h200(node, index, cards) for index in range(cards))
    facts = msgspec.structs.replace(_FACTS, bus_cards=cards, bus=tuple(card.pci for card in there))
    return node_feature(node, facts, there)
