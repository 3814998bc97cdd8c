"""How far the upgrades of a group have come, how long a node takes, and when the last one should be done."""

import heapq
import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Final

from gpu_control_plane.api.nvidia.names import NodeAnnotation, UpgradeState
from gpu_control_plane.api.nvidia.status import MAX_NODES_NAMED, NodeTrouble, UpgradeReport
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.kube import Signal
from gpu_control_plane.operator.upgrade.node_view import NodeView
from gpu_control_plane.operator.upgrade.rollout import scaled_value

REASON: Final = "UpgradeFailed"
_MINUTE_SECONDS: Final = 60


def progress_report(policy: UpgradePolicy, views: Sequence[NodeView], message: str, now: float) -> UpgradeReport:
    """What the status of the ClusterPolicy or the NVIDIADriver says of the nodes whose driver it brings. Pure."""
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
    """Seconds that the node's last upgrade took; None if it has had none, or has not finished it."""
    started, ended = view.since(NodeAnnotation.STARTED), view.since(NodeAnnotation.STEP_SINCE)
    if view.state is not UpgradeState.DONE or started is None or ended is None or ended < started:
        return None
    return ended - started


class ProgressReports:
    """The last report of each group. `changed` is fired when one has changed, appeared or gone."""

    def __init__(self) -> None:
        self.changed = Signal("upgrade-progress")
        self._held: dict[str, UpgradeReport] = {}
        self._unreadable: AbstractSet[str] | None = None
        """Groups whose policy cannot be read; None until all groups have been looked at once."""

    def get(self, name: str, last: UpgradeReport | None) -> UpgradeReport | None:
        """The report, None while upgrades of the group are off. Where this process does not know it, it is what was
        reported `last`, so that a restart changes no status."""
        return self._held.get(name, last if self._unreadable is None or name in self._unreadable else None)

    def put(self, name: str, report: UpgradeReport) -> None:
        if self._held.get(name) != report:
            self._held[name] = report
            self.changed.fire()

    def invalidate(self) -> None:
        """This process does not know the reports any more."""
        self._held, self._unreadable = {}, None

    def complete(self, active: AbstractSet[str], unreadable: AbstractSet[str]) -> None:
        """All groups have been looked at: upgrades are off in those that are neither active nor unreadable."""
        gone = self._held.keys() - active - unreadable
        changed = bool(gone) or self._unreadable != unreadable
        self._unreadable = unreadable
        self._held = {name: held for name, held in self._held.items() if name not in gone}
        if changed:
            self.changed.fire()


def _expected_end(policy: UpgradePolicy, views: Sequence[NodeView], average: float, now: float) -> datetime | None:
    """When the last node should be done: those in progress finish, and each frees a slot for one that waits."""
    pending = sum(view.state is UpgradeState.REQUIRED and not view.skipped for view in views)
    in_progress = [view for view in views if view.in_progress]
    if not pending and not in_progress:
        return None
    slots = [max((view.since(NodeAnnotation.STARTED) or now) + average, now) for view in in_progress]
    most = min(policy.max_parallel_upgrades or len(views), max(scaled_value(len(views), policy.max_unavailable), 1))
    slots += [now] * (most - len(slots))
    heapq.heapify(slots)
    for _ in range(pending):
        heapq.heappush(slots, heapq.heappop(slots) + average)
    # Whole minutes: an estimate that changed every second would be written every second.
    return datetime.fromtimestamp(math.ceil(max(slots) / _MINUTE_SECONDS) * _MINUTE_SECONDS, UTC)


def _trouble(view: NodeView) -> NodeTrouble:
    why = view.annotations.get(NodeAnnotation.FAILURE, "the Events of the node say why")
    return NodeTrouble(node=view.name, reason=REASON, message=why[:1024])
