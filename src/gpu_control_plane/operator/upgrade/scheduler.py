"""Starts the upgrades of the next nodes: the one controller that looks at all nodes together.

It has one worker, so that no slot is given twice. It also reports how far the upgrades have come.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.expectations import LostAnswers
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.predicates import spec_changed
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.watch import SLICE
from gpu_control_plane.operator.driver_secrets import DriverSecrets
from gpu_control_plane.operator.upgrade.actions import NodePatch
from gpu_control_plane.operator.upgrade.caches import UpgradeCaches, digest_of
from gpu_control_plane.operator.upgrade.evictor import Evictor
from gpu_control_plane.operator.upgrade.executor import ActionExecutor
from gpu_control_plane.operator.upgrade.groups import GroupIndex, UpgradeGroup
from gpu_control_plane.operator.upgrade.metrics import GroupCount, UpgradeMetrics
from gpu_control_plane.operator.upgrade.node_view import IDLE, NodeView
from gpu_control_plane.operator.upgrade.predicates import (
    driver_or_validator,
    node_changed,
    the_schedule,
)
from gpu_control_plane.operator.upgrade.progress import ProgressReports, progress_report
from gpu_control_plane.operator.upgrade.rollout import rollout
from gpu_control_plane.operator.views import DaemonSet

_INTERVAL_SECONDS: Final = 0.2
"""Between two looks at all nodes, so that many changes at once cost one."""
_MOST_TIME_SHARE: Final = 0.1
"""The share of its time that the process may spend on looking at all nodes. Waiting for the API server does not count:
if it did, a slow API server would make starts rare."""


class UpgradeScheduler:
    """The controller that starts upgrades."""

    def __init__(
        self, runtime: Runtime, caches: UpgradeCaches, groups: GroupIndex, *, executor: ActionExecutor,
        evictor: Evictor, secrets: DriverSecrets, reports: ProgressReports, now: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._client = runtime.client
        self._caches = caches
        self._groups = groups
        self._executor = executor
        self._evictor = evictor
        self._reports = reports
        self._secrets = secrets
        self._now = now
        self._clock = clock
        self._metrics = UpgradeMetrics(runtime.metrics.registry)
        self._lost_answers = LostAnswers()
        self._spent = 0.0
        """Seconds that the present look at all nodes has taken so far."""
        self.next_look = 0.0
        """When the clock has come so far, all nodes may be looked at again."""
        controller = runtime.controller("upgrade-scheduler", self._reconcile, workers=1)
        controller.watch(caches.nodes, the_schedule, when=node_changed)
        controller.watch(caches.daemonsets, the_schedule, when=spec_changed)
        controller.watch(caches.revisions, the_schedule)
        controller.watch(groups.changed, the_schedule)
        controller.watch(caches.pods, the_schedule, when=driver_or_validator)

    def forget(self) -> None:
        """This process begins to lead: another one may have started upgrades that the cache does not show yet."""
        self.next_look = 0.0
        self._lost_answers.suspect()

    async def _reconcile(self, _key: Key) -> Requeue | None:
        """Look at all nodes and start the next ones."""
        began = self._clock()
        if began < self.next_look:
            return Requeue(self.next_look - began)
        self._spent = 0.0
        counts: dict[str, GroupCount] = {}
        groups = self._groups.read()
        if not self._groups.known:
            return None
        for group in groups:
            policy = group.active_policy
            if policy is not None:
                counts[group.name] = await self._schedule(group, policy)
        self._metrics.show(counts)
        self._reports.complete(counts.keys(), {group.name for group in groups if group.unreadable})
        self.next_look = max(began + _INTERVAL_SECONDS, self._clock() + self._spent / _MOST_TIME_SHARE)
        lacks_secret = any(view.missing_secret for count in counts.values() for view in count.views)
        return Requeue(self._secrets.interval) if lacks_secret else None

    async def _schedule(self, group: UpgradeGroup, policy: UpgradePolicy) -> GroupCount:
        await self._read_starts_back()
        began = self._clock()
        nodes: dict[str, Node] = {}
        views: list[NodeView] = []
        missing = await self._secrets.missing(self._caches.driver_secrets())
        for number, name in enumerate(sorted(group.nodes), start=1):
            node = self._caches.nodes.get(name)
            if node is not None and not node.deleting:
                nodes[name] = node
                views.append(self._caches.view(node, self._evictor, missing_secrets=missing))
            if number % SLICE == 0:
                await asyncio.sleep(0)
        plan = rollout(policy, views, self._now())
        report = progress_report(policy, views, plan.message, self._now())
        self._spent += self._clock() - began
        if self._groups.may_write:
            by_name = {view.name: view for view in views}
            for name, first in plan.start.items():
                if first.state is not UpgradeState.POD_RESTART_REQUIRED or await self._same_driver(by_name[name]):
                    await self._start(nodes[name], by_name[name], first)
        self._reports.put(group.name, report)
        return GroupCount(views, plan.slots)

    async def _same_driver(self, view: NodeView) -> bool:
        """Whether a node's driver pod, which is about to be replaced without evicting anything, has the digest that its
        DaemonSet has at the API server now. A revision may be seen before the template it is of; then the watch is
        about to deliver the template, and wakes this controller."""
        for pod in view.drivers:
            try:
                live = await self._client.get(DaemonSet, pod.daemonset, self._caches.namespace)
            except NotFound:
                return False
            if digest_of(live.spec.template.spec) != pod.digest:
                return False
        return True

    async def _start(self, node: Node, view: NodeView, first: NodePatch) -> None:
        with self._lost_answers.unless_answered():
            await self._executor.patch(node, view, first)

    async def _read_starts_back(self) -> None:
        """Let the cache show every node whose upgrade was started: one that it does not show would not be counted."""
        if self._lost_answers.possible:
            idle = ",".join(sorted(state.value for state in IDLE if state))
            in_progress = f"{NodeLabel.UPGRADE_STATE},{NodeLabel.UPGRADE_STATE} notin ({idle})"
            for node in await self._client.list(Node, Selection(labels=in_progress)):
                self._caches.nodes.learn(node)
            self._lost_answers.read_back()
