"""How far a campaign has come, how long a node takes, and when it should be over. Pure."""

import heapq
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from gpu_control_plane.api.nvidia.names import NodeAnnotation, UpgradeState
from gpu_control_plane.api.nvidia.status import MAX_NODES_NAMED, NodeTrouble, UpgradeReport
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.operator.upgrade.node_view import NodeView
from gpu_control_plane.operator.upgrade.slots import share

REASON: Final = "UpgradeFailed"
_MINUTE: Final = 60


def report(policy: UpgradePolicy, views: Sequence[NodeView], message: str, now: float) -> UpgradeReport:
    """What the status of the ClusterPolicy or the NVIDIADriver says of the nodes whose driver it brings."""
    views = [view for view in views if view.managed]
    waiting = [view for view in views if view.state is UpgradeState.REQUIRED]
    failed = sorted((view for view in views if view.state is UpgradeState.FAILED), key=lambda view: view.name)
    took = [seconds for view in views if (seconds := duration(view)) is not None]
    average = round(sum(took) / len(took)) if took else None
    pending = [view for view in waiting if not view.skipped]
    return UpgradeReport(
        total=len(views),
        done=sum(view.state is UpgradeState.DONE for view in views),
        in_progress=sum(view.in_progress for view in views),
        pending=len(pending),
        failed=len(failed),
        skipped=len(waiting) - len(pending),
        average_seconds=average,
        measured=len(took),
        expected_end=None if average is None or policy.paused else _expected_end(policy, views, average, now),
        message=message[:1024],
        failed_nodes=tuple(_trouble(view) for view in failed[:MAX_NODES_NAMED]),
    )


def duration(view: NodeView) -> float | None:
    """Seconds the node's last upgrade took; None if it has had none, or has not finished it."""
    started, ended = view.since(NodeAnnotation.STARTED), view.since(NodeAnnotation.STEP_SINCE)
    if view.state is not UpgradeState.DONE or started is None or ended is None or ended < started:
        return None
    return ended - started


def _expected_end(policy: UpgradePolicy, views: Sequence[NodeView], average: float, now: float) -> datetime | None:
    """When the last node should be through: those under way finish, and each makes room for one that waits."""
    pending = sum(view.state is UpgradeState.REQUIRED and not view.skipped for view in views)
    under_way = [view for view in views if view.in_progress]
    if not pending and not under_way:
        return None
    lanes = [max((view.since(NodeAnnotation.STARTED) or now) + average, now) for view in under_way]
    room = min(policy.max_parallel_upgrades or len(views), max(share(len(views), policy.max_unavailable), 1))
    lanes += [now] * (room - len(lanes))
    heapq.heapify(lanes)
    for _ in range(pending):
        heapq.heappush(lanes, heapq.heappop(lanes) + average)
    # Whole minutes: an estimate that moves with every second would be written with every second.
    return datetime.fromtimestamp(math.ceil(max(lanes) / _MINUTE) * _MINUTE, UTC)


def _trouble(view: NodeView) -> NodeTrouble:
    why = view.annotations.get(NodeAnnotation.FAILURE, "the Events of the node say why")
    return NodeTrouble(node=view.name, reason=REASON, message=why[:1024])
