"""Takes each node through its upgrade, one action after the other; `scheduler` says which nodes start.

Nothing is kept that the Nodes do not say, so the process may die between any two writes and the next one continues from
what it finds.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.status import UpgradeReport
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Signal
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.dynamic_caches import DynamicCaches
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.predicates import spec_changed
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.operator.driver_secrets import DriverSecrets
from gpu_control_plane.operator.upgrade.actions import DeleteDriverPod, EvictPods, NodePatch, Wait
from gpu_control_plane.operator.upgrade.caches import GETS_DRIVER_POD, UpgradeCaches
from gpu_control_plane.operator.upgrade.evictor import Evictor
from gpu_control_plane.operator.upgrade.executor import ActionExecutor
from gpu_control_plane.operator.upgrade.groups import GroupIndex, UpgradePolicies
from gpu_control_plane.operator.upgrade.node_view import NEEDS_PODS, NodeView, UpgradeLimits
from gpu_control_plane.operator.upgrade.predicates import (
    agent_changed,
    driver_or_validator,
    node_changed,
    node_of,
)
from gpu_control_plane.operator.upgrade.progress import ProgressReports
from gpu_control_plane.operator.upgrade.scheduler import UpgradeScheduler
from gpu_control_plane.operator.upgrade.step import step, switch_off

_MOST_ACTIONS: Final = 32
_LIST_TIMEOUT_SECONDS: Final = 20.0


class UpgradeTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Clocks and waiting times of upgrades."""

    limits: UpgradeLimits = UpgradeLimits()
    now: Callable[[], float] = time.time
    """Seconds since the epoch, as annotations have them."""
    clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()
    """A clock that never goes back."""


class UpgradeController:
    """Driver upgrades of all groups. `progress_changed` is fired when `report` gives something new for a group."""

    def __init__(
        self, runtime: Runtime, namespace: str, policies: UpgradePolicies, secrets: DriverSecrets,
        timing: UpgradeTiming | None = None,
    ) -> None:  # fmt: skip
        self._timing = timing or UpgradeTiming()
        self._now = self._timing.now
        self._caches = UpgradeCaches(runtime, namespace, self._timing.limits)
        self._secrets = secrets
        self._evictor = Evictor(runtime.client, self._now)
        self._executor = ActionExecutor(runtime.client, runtime.events, self._evictor, namespace)
        self._node_pods = DynamicCaches(runtime.unfenced_client, Pod)
        self._node_pods_changed = Signal("upgrade-node-pods")
        self._groups = GroupIndex(policies, self._caches.nodes)
        self._reports = ProgressReports()
        self.progress_changed = self._reports.changed
        self._ungrouped: dict[str, float] = {}
        """Nodes with an upgrade that are in no group, and since when."""
        self.scheduler = UpgradeScheduler(
            runtime,
            self._caches,
            self._groups,
            executor=self._executor,
            evictor=self._evictor,
            secrets=secrets,
            reports=self._reports,
            now=self._now,
            clock=self._timing.clock,
        )
        self._watch(runtime)

    def report(self, group: str, last: UpgradeReport | None = None) -> UpgradeReport | None:
        """How far the upgrades of a group have come, None while they are off; `last` is what was reported before."""
        return self._reports.get(group, last)

    def _watch(self, runtime: Runtime) -> None:
        caches = self._caches
        runtime.on_lead(self._forget)
        runtime.service(self._node_pods.run)
        controller = runtime.controller("upgrade-nodes", self._reconcile)
        controller.watch(caches.nodes, when=node_changed)
        controller.watch(caches.daemonsets, caches.nodes_of_daemonset, when=spec_changed)
        controller.watch(caches.revisions, caches.nodes_of_revision)
        controller.watch(caches.states, when=agent_changed)
        controller.watch(self._groups.regrouped)
        controller.watch(self._node_pods_changed)
        controller.watch(caches.pods, node_of, when=driver_or_validator)

    async def _reconcile(self, key: Key) -> Requeue | None:
        node = self._caches.nodes.at(key)
        if node is None or node.deleting:
            self._release(key.name)
            self._ungrouped.pop(key.name, None)
            return None
        groups, group = self._groups.read(), self._groups.group_of(key.name)
        if not self._groups.may_write or (group is not None and group.unreadable):
            # Its pods are not watched meanwhile, so what was asked of them says nothing later.
            self._release(key.name)
            return None
        policy = group.active_policy if group is not None else None
        if policy is None:
            self._release(key.name)
            return await self._switch_off(node, at_once=group is not None or not groups)
        self._ungrouped.pop(key.name, None)
        return await self._advance(node, policy)

    async def _advance(self, node: Node, policy: UpgradePolicy) -> Requeue | None:
        """Carry out one action after the other until the next one is to wait."""
        for _ in range(_MOST_ACTIONS):
            view = await self._view(node)
            action = step(view, policy, self._now())
            match action:
                case Wait():
                    return self._look_again(view, action)
                case NodePatch():
                    node = await self._executor.patch(node, view, action)
                case EvictPods() | DeleteDriverPod() if not await self._executor.is_current(node):
                    return None
                case EvictPods():
                    await self._executor.evict(node, action)
                case DeleteDriverPod():
                    await self._executor.delete_driver_pod(node, action)
        raise RuntimeError(f"the upgrade of {node.name} does not come to rest")

    async def _view(self, node: Node) -> NodeView:
        """The node now. Its pods are watched, and part of the view, only in the states that need them."""
        name, state = node.name, UpgradeState(node.metadata.labels.get(NodeLabel.UPGRADE_STATE, ""))
        if state not in NEEDS_PODS:
            self._node_pods.forget(name)
            names = self._caches.driver_secrets() if state in GETS_DRIVER_POD else ()
            return self._caches.view(node, self._evictor, missing_secrets=await self._secrets.missing(names))
        selection = Selection(fields=f"spec.nodeName={name}")
        pods = self._node_pods.follow(name, selection, lambda _old, _new: self._node_pods_changed.fire(Key(name)))
        async with asyncio.timeout(_LIST_TIMEOUT_SECONDS):
            await pods.synced()
        return self._caches.view(node, self._evictor, tuple(pods))

    def _look_again(self, view: NodeView, action: Wait) -> Requeue | None:
        """When to look at the node again although nothing has changed."""
        times = [] if action.until is None else [max(action.until - self._now(), 0.0)]
        if view.missing_secret:
            times.append(self._secrets.interval)
        return Requeue(min(times)) if times else None

    async def _switch_off(self, node: Node, *, at_once: bool) -> Requeue | None:
        """Undo the upgrade of a node. One that is in no group, though others are, keeps it for a moment: it may be
        moving from one policy to another, or have lost a label that is about to come back."""
        view = self._caches.view(node, self._evictor)
        action = switch_off(view)
        if action is not None and not at_once:
            since = self._ungrouped.setdefault(node.name, self._now())
            left = since + self._timing.limits.policy_change_grace_period.total_seconds() - self._now()
            if left > 0:
                return Requeue(left)
        self._ungrouped.pop(node.name, None)
        if action is not None:
            await self._executor.patch(node, view, action)
        return None

    def _forget(self) -> None:
        """This process begins to lead. If it led before, what it remembers is outdated: another process may have
        started upgrades since, and may have evicted pods."""
        self._groups.forget()
        self.scheduler.forget()
        self._evictor.clear()
        self._ungrouped.clear()
        self._reports.invalidate()

    def _release(self, name: str) -> None:
        """Stop watching the pods of a node, and forget what was asked of them."""
        self._node_pods.forget(name)
        self._evictor.forget(name)
