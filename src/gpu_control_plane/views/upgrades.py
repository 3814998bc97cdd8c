"""How far the upgrade of drivers is: what the labels and annotations of the Nodes say."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import TRUE, NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.operator.upgrade.node_view import IDLE
from gpu_control_plane.views.fleet import Fleet


class NodeUpgrade(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The upgrade of one node. Fields are added, never renamed or removed."""

    node: str
    state: UpgradeState
    driver: str | None
    """The driver that is loaded."""
    skipped: bool
    """Whether a person keeps upgrades away from it."""
    since: datetime | None
    """When its present step began."""
    started: datetime | None
    failure: str | None

    @property
    def in_progress(self) -> bool:
        return self.state not in IDLE


class UpgradeProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The upgrade of all nodes whose driver is ours to upgrade."""

    total: int
    done: int
    in_progress: int
    waiting: int
    failed: int
    skipped: int
    nodes: tuple[NodeUpgrade, ...]
    """Those that fail, are under way or wait, in this order, and then those that are done."""
    drivers: dict[str, int]
    """Nodes by the version of the driver that is loaded."""

    @property
    def under_way(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self.in_progress or self.waiting)


def upgrade_progress(fleet: Fleet) -> UpgradeProgress:
    nodes = [_of_node(node, fleet) for node in fleet.nodes.values() if NodeLabel.UPGRADE_STATE in node.metadata.labels]
    states = Counter(node.state for node in nodes)
    drivers = Counter(state.status.driver.version for state in fleet.states.values() if state.status.driver is not None)
    return UpgradeProgress(
        total=len(nodes),
        done=states[UpgradeState.DONE],
        in_progress=sum(node.in_progress for node in nodes),
        waiting=states[UpgradeState.REQUIRED],
        failed=states[UpgradeState.FAILED],
        skipped=sum(node.skipped for node in nodes),
        nodes=tuple(sorted(nodes, key=lambda node: (_rank(node), node.node))),
        drivers=dict(sorted(drivers.items())),
    )


def _of_node(node: Node, fleet: Fleet) -> NodeUpgrade:
    labels, annotations = node.metadata.labels, node.metadata.annotations
    state = fleet.states.get(node.name)
    driver = state.status.driver if state is not None else None
    return NodeUpgrade(
        node=node.name,
        state=UpgradeState(labels[NodeLabel.UPGRADE_STATE]),
        driver=driver.version if driver is not None else None,
        skipped=labels.get(NodeLabel.UPGRADE_SKIP) == TRUE,
        since=_moment(annotations, NodeAnnotation.STEP_SINCE),
        started=_moment(annotations, NodeAnnotation.STARTED),
        failure=annotations.get(NodeAnnotation.FAILURE),
    )


def _rank(node: NodeUpgrade) -> int:
    order: Iterable[bool] = (node.state is UpgradeState.FAILED, node.in_progress, node.state is UpgradeState.REQUIRED)
    return next((number for number, here in enumerate(order) if here), 3)


def _moment(annotations: Mapping[str, str], name: NodeAnnotation) -> datetime | None:
    """A time in seconds since 1970; what people write there counts only if it is one."""
    text = annotations.get(name, "")
    try:
        return datetime.fromtimestamp(int(text), UTC) if text.isdecimal() else None
    except (OverflowError, ValueError):
        return None
