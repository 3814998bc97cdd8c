"""GPU nodes as rows: whether each serves pods, what is free on it, and what software it has."""

from collections import Counter
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.names import NodeCondition
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.kube.conditions import find, is_true
from gpu_control_plane.views.fleet import Fleet

READY: Final = "Ready"
_UNKNOWN: Final = "Unknown"


class NodeRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A GPU node. Fields are added, never renamed or removed."""

    name: str
    state: str
    """`Ready`, or in one word why its cards are not offered, or what is wrong with it."""
    message: str | None
    """What is wrong and what to do."""
    ready: bool
    """Whether its cards may join pools."""
    degraded: bool
    kubernetes_ready: bool | None
    """Whether the Node is; None where Nodes were not read."""
    cordoned: bool | None
    cards: int
    models: dict[str, int]
    pools: dict[str, int]
    """Cards in each pool."""
    pending: int
    """Cards in no pool."""
    used: int | None
    """Units that pods hold."""
    free: int | None
    """Units that a pod could be given now."""
    unhealthy: int
    """Units on offer that cannot be handed out."""
    driver: str | None
    cuda: str | None
    injection: str | None
    upgrade: UpgradeState | None
    created: datetime | None


def node_rows(fleet: Fleet) -> list[NodeRow]:
    """The GPU nodes by name."""
    return [node_row(state, fleet.nodes.get(name)) for name, state in sorted(fleet.states.items())]


def node_row(state: GPUNodeState, node: Node | None) -> NodeRow:
    status = state.status
    plugin, driver = status.plugin, status.driver
    word, message = node_state(state, node)
    upgrade = node.metadata.labels.get(NodeLabel.UPGRADE_STATE) if node is not None else None
    return NodeRow(
        name=state.name,
        state=word,
        message=message,
        ready=is_true(status.conditions, NodeCondition.READY_FOR_POOLING),
        degraded=is_true(status.conditions, NodeCondition.DEGRADED),
        kubernetes_ready=node.ready if node is not None else None,
        cordoned=node.spec.unschedulable if node is not None else None,
        cards=status.device_count if status.device_count is not None else len(status.devices),
        models=dict(sorted(Counter(card.product or "unknown model" for card in status.devices).items())),
        pools=dict(sorted(Counter(card.pool for card in status.pools.assigned).items())) if status.pools else {},
        pending=len(status.pools.pending) if status.pools is not None else 0,
        used=plugin.used if plugin is not None else None,
        free=plugin.free if plugin is not None else None,
        unhealthy=sum(each.units - each.healthy for each in plugin.resources) if plugin is not None else 0,
        driver=driver.version if driver is not None else None,
        cuda=driver.cuda_version if driver is not None else None,
        injection=status.toolkit.injection if status.toolkit is not None else None,
        upgrade=UpgradeState(upgrade) if upgrade else None,
        created=state.metadata.creation_timestamp,
    )


def node_state(state: GPUNodeState, node: Node | None) -> tuple[str, str | None]:
    """One word for how a node fares, and the sentence behind it: the worst first."""
    conditions = state.status.conditions
    for kind, bad in ((NodeCondition.VANISHED, "True"), (NodeCondition.READY_FOR_POOLING, "False")):
        said = find(conditions, kind)
        if said is not None and said.status == bad:
            return said.reason, said.message or None
    if node is not None and not node.ready:
        return "NodeNotReady", "Kubernetes says that the Node is not ready"
    degraded = find(conditions, NodeCondition.DEGRADED)
    if degraded is not None and degraded.status == "True":
        return degraded.reason, degraded.message or None
    if find(conditions, NodeCondition.READY_FOR_POOLING) is None:
        return _UNKNOWN, "nothing is known yet about the software of the node"
    if node is not None and node.spec.unschedulable:
        return "Cordoned", "the scheduler sends no pods to it"
    return READY, None
