"""Carries out what `step` and `rollout` say: one reconcile for each node, and one, alone, that gives turns.

Every write of a Node carries the resourceVersion it was decided on. Nothing is kept that the Nodes do not say, so the
process may die between any two writes and the next one goes on from what it finds.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.status import UpgradeReport
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.dynamic_caches import DynamicCaches
from gpu_control_plane.kube.errors import ApiError, Conflict, NotFound
from gpu_control_plane.kube.expectations import LostAnswers
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.watch import SLICE
from gpu_control_plane.operator.upgrade.actions import Change, Evict, Restart, Wait
from gpu_control_plane.operator.upgrade.caches import Look, digest_of
from gpu_control_plane.operator.upgrade.events import tell, tell_refused
from gpu_control_plane.operator.upgrade.evictor import Evictions
from gpu_control_plane.operator.upgrade.groups import Campaign, Campaigns, governed_otherwise
from gpu_control_plane.operator.upgrade.metrics import Count, UpgradeMetrics
from gpu_control_plane.operator.upgrade.node_view import IDLE, NEEDS_PODS, NodeView
from gpu_control_plane.operator.upgrade.predicates import (
    TURNS,
    answer_changed,
    node_changed,
    node_of,
    template_changed,
    the_turns,
)
from gpu_control_plane.operator.upgrade.progress import report
from gpu_control_plane.operator.upgrade.reports import Reports
from gpu_control_plane.operator.upgrade.rollout import rollout
from gpu_control_plane.operator.upgrade.step import step, switch_off
from gpu_control_plane.operator.views import DaemonSet, Pod

_INTERVAL: Final = 0.2
"""Seconds between two looks at all nodes, so that many changes at once cost one."""
_SHARE: Final = 0.1
"""The part of its time that a process may spend on looking at all nodes. Waiting for the API server does not count: a
slow one would make turns rare."""
_UNGOVERNED: Final = 10.0
"""Seconds after which a node that nobody governs is let go."""
_MOST_STEPS: Final = 32
_LISTING: Final = 20.0

_log = structlog.get_logger(component="operator.upgrade")


def build_upgrades(
    runtime: Runtime, namespace: str, campaigns: Campaigns, now: Callable[[], float] = time.time
) -> "Upgrades":
    """Add driver upgrades to a process. Call `wake` whenever campaigns, or the permission to write, change."""
    made = Upgrades(runtime, namespace, campaigns, now)
    made.start()
    return made


class Upgrades:
    """Driver upgrades of all campaigns. `on_report` is called when what they report has changed."""

    def __init__(self, runtime: Runtime, namespace: str, campaigns: Campaigns, now: Callable[[], float]) -> None:
        self._runtime = runtime
        self._campaigns = campaigns
        self._now = now
        self._namespace = namespace
        self._look = Look(runtime, namespace)
        self._evictions = Evictions(runtime.client, now)
        self._node_pods = DynamicCaches(runtime.unfenced_client, Pod)
        self._metrics = UpgradeMetrics(runtime.metrics.registry)
        self._known: tuple[Campaign, ...] | None = None
        self._governing: dict[str, Campaign] = {}
        self._unsaid = False
        """Whether nobody can say what the campaigns are."""
        self._writing = False
        self._lost_answers = LostAnswers()
        self._ungoverned: dict[str, float] = {}
        """Nodes under way that nobody governs, and since when."""
        self._looking = self._next_look = 0.0
        self._reports = Reports(lambda: self.on_report())  # noqa: PLW0108 - it is set later
        self.on_report: Callable[[], None] = lambda: None
        self._steps = runtime.controller("upgrade-nodes", self._reconcile_node)
        self._turns = runtime.controller("upgrade-turns", self._give_turns, workers=1)

    def report(self, name: str, last: UpgradeReport | None = None) -> UpgradeReport | None:
        """How far the campaign has come, None while it is off; `last` is what was told of it before."""
        return self._reports.get(name, last)

    def wake(self) -> None:
        """Campaigns, or the permission to write, may have changed."""
        if self._known is None:
            return  # while caches fill, the answer would be wrong; the first reconcile asks when they are complete
        before, wrote = self._governing, self._writing
        self._read_campaigns()
        changed = governed_otherwise(before, self._governing)
        for name in changed if wrote == self._writing else {node.name for node in self._look.nodes}:
            self._steps.enqueue(Key(name))
        self._turns.enqueue(TURNS)

    def start(self) -> None:
        look = self._look
        self._runtime.on_lead(self._forget)
        self._runtime.service(self._node_pods.run)
        self._steps.watch(look.nodes, when=node_changed)
        self._steps.watch(look.daemonsets, look.nodes_of_daemonset, when=template_changed)
        self._steps.watch(look.revisions, look.nodes_of_revision)
        self._steps.watch(look.states, when=answer_changed)
        self._turns.watch(look.nodes, the_turns, when=node_changed)
        self._turns.watch(look.daemonsets, the_turns, when=template_changed)
        self._turns.watch(look.revisions, the_turns)
        for pods in look.pods:
            self._steps.watch(pods, node_of)
            self._turns.watch(pods, the_turns)

    async def _reconcile_node(self, key: Key) -> Requeue | None:
        node = self._look.nodes.at(key)
        if self._known is None:
            self._read_campaigns()
        if node is None or node.deleting:
            self._let_go(key.name)
            self._ungoverned.pop(key.name, None)
            return None
        campaign = self._governing.get(key.name)
        if not self._writing or (campaign is not None and campaign.unreadable):
            self._let_go(key.name)  # nobody looks after its pods now; what was asked of them is no news later
            return None
        policy = campaign.active_policy if campaign is not None else None
        if policy is None:
            self._let_go(key.name)
            return await self._switch_off(node, at_once=campaign is not None or not self._known)
        self._ungoverned.pop(key.name, None)
        return await self._advance(node, policy)

    async def _advance(self, node: Node, policy: UpgradePolicy) -> Requeue | None:
        """Step after step until there is something to wait for."""
        for _ in range(_MOST_STEPS):
            view = await self._view(node)
            found = step(view, policy, self._now())
            match found:
                case Wait():
                    return Requeue(max(found.until - self._now(), 0.0)) if found.until is not None else None
                case Change():
                    node = await self._write(node, view, found)
                case Evict() | Restart() if not await self._is_still(node):
                    return None
                case Evict():
                    await self._evict(node, found)
                case Restart():
                    await self._restart(node, found)
        raise RuntimeError(f"the upgrade of {node.name} does not come to rest")

    async def _view(self, node: Node) -> NodeView:
        """The node now, with its pods in the states that need them. They are watched only as long as that."""
        name = node.name
        if UpgradeState(node.metadata.labels.get(NodeLabel.UPGRADE_STATE, "")) not in NEEDS_PODS:
            self._node_pods.forget(name)
            return self._look.view(node, self._evictions)
        pods = self._node_pods.follow(
            name, Selection(fields=f"spec.nodeName={name}"), lambda _old, _new: self._steps.enqueue(Key(name))
        )
        async with asyncio.timeout(_LISTING):
            await pods.synced()
        return self._look.view(node, self._evictions, tuple(pods))

    async def _is_still(self, node: Node) -> bool:
        """Whether the node is what a step was decided on: a change of the Node would be refused if not, but pods know
        nothing of its state. If not, the cache is about to hear of it, and wakes us."""
        try:
            live = await self._runtime.client.get(Node, node.name)
        except NotFound:
            return False
        return live.metadata.uid == node.metadata.uid and _stage_of(live) == _stage_of(node)

    async def _write(self, node: Node, view: NodeView, change: Change) -> Node:
        version = node.metadata.resource_version
        written = await self._runtime.client.patch(Node, node.name, change.patch(view), resource_version=version)
        if change.state is not None:
            self._evictions.forget(node.name)
            _log.info("driver upgrade", node=node.name, state=change.state.value, why=change.note)
        tell(self._runtime.events, node, change)
        return written

    async def _switch_off(self, node: Node, *, at_once: bool) -> Requeue | None:
        """Forget the upgrade of a node. One that nobody governs, though others are governed, has a moment: it may be on
        its way from one policy to another, or have lost a label that is about to come back."""
        view = self._look.view(node, self._evictions)
        change = switch_off(view)
        if change is not None and not at_once:
            left = self._ungoverned.setdefault(node.name, self._now()) + _UNGOVERNED - self._now()
            if left > 0:
                return Requeue(left)
        self._ungoverned.pop(node.name, None)
        if change is not None:
            await self._write(node, view, change)
        return None

    async def _evict(self, node: Node, order: Evict) -> None:
        tell(self._runtime.events, node, order)
        await gather_all(self._evict_one(node, pod) for pod in order.pods)

    async def _evict_one(self, node: Node, pod: Pod) -> None:
        refusal = await self._evictions.evict(node.name, pod)
        if refusal is not None:
            tell_refused(self._runtime.events, node, str(pod.key), refusal.why)

    async def _restart(self, node: Node, order: Restart) -> None:
        pod = order.pod
        try:
            await self._runtime.client.delete(Pod, pod.name, self._namespace, uid=pod.uid)
        except (NotFound, Conflict):
            pass  # it is gone, or another one has its name; the cache will say so
        except ApiError:
            self._evictions.answered(node.name)
            raise
        else:
            tell(self._runtime.events, node, order)
        self._evictions.left(node.name, pod.uid)

    async def _give_turns(self, _key: Key) -> Requeue | None:
        """Look at all nodes and let the next ones begin. Nobody else does, and never two of these at a time."""
        began = _clock()
        if began < self._next_look:
            return Requeue(self._next_look - began)
        self._looking = 0.0
        counts: dict[str, Count] = {}
        known = self._known if self._known is not None else self._read_campaigns()
        if self._unsaid:
            return None
        for campaign in known:
            policy = campaign.active_policy
            if policy is not None:
                counts[campaign.name] = await self._give_turns_in(campaign, policy)
        self._metrics.show(counts)
        self._reports.settle(counts.keys(), {campaign.name for campaign in known if campaign.unreadable})
        self._next_look = max(began + _INTERVAL, _clock() + self._looking / _SHARE)
        return None

    async def _give_turns_in(self, campaign: Campaign, policy: UpgradePolicy) -> Count:
        await self._read_turns_back()
        began = _clock()
        nodes: dict[str, Node] = {}
        views: list[NodeView] = []
        for number, name in enumerate(sorted(campaign.nodes), start=1):
            node = self._look.nodes.get(name)
            if node is not None and not node.deleting:
                nodes[name] = node
                views.append(self._look.view(node, self._evictions))
            if number % SLICE == 0:
                await asyncio.sleep(0)
        found = rollout(policy, views, self._now())
        told = report(policy, views, found.message, self._now())
        self._looking += _clock() - began
        if self._writing:
            by_name = {view.name: view for view in views}
            for name, first in found.begin.items():
                if first.state is not UpgradeState.POD_RESTART_REQUIRED or await self._stays_the_same(by_name[name]):
                    await self._begin(nodes[name], by_name[name], first)
        self._reports.put(campaign.name, told)
        return Count(views, found.slots)

    async def _stays_the_same(self, view: NodeView) -> bool:
        """Whether the driver of a node, whose pod is about to be replaced under work, is what its DaemonSet has now.
        Revisions may be seen before the template they are of; then the cache is about to hear of it, and wakes us."""
        for pod in view.drivers:
            try:
                live = await self._runtime.client.get(DaemonSet, pod.daemonset, self._namespace)
            except NotFound:
                return False
            if digest_of(live.spec.template.spec) != pod.digest:
                return False
        return True

    async def _begin(self, node: Node, view: NodeView, first: Change) -> None:
        with self._lost_answers.unless_answered():
            await self._write(node, view, first)

    async def _read_turns_back(self) -> None:
        """Let the cache show every node whose turn has begun: one that it does not show would not be counted."""
        if self._lost_answers.possible:
            idle = ",".join(sorted(state.value for state in IDLE if state))
            under_way = f"{NodeLabel.UPGRADE_STATE},{NodeLabel.UPGRADE_STATE} notin ({idle})"
            for node in await self._runtime.client.list(Node, Selection(labels=under_way)):
                self._look.nodes.learn(node)
            self._lost_answers.read_back()

    def _read_campaigns(self) -> tuple[Campaign, ...]:
        found = self._campaigns.all()
        self._writing = self._campaigns.may_write() and found is not None
        self._known, self._unsaid = tuple(found or ()), found is None
        self._governing = {node: campaign for campaign in self._known for node in campaign.nodes}
        return self._known

    def _forget(self) -> None:
        """This process begins to lead. If it did before, what it remembers is old: others may have given turns that its
        cache does not show yet, and nobody may have looked after pods that it had asked."""
        self._known, self._governing, self._next_look = None, {}, 0.0
        self._lost_answers.suspect()
        self._evictions.clear()
        self._ungoverned.clear()
        self._reports.doubt()

    def _let_go(self, name: str) -> None:
        self._node_pods.forget(name)
        self._evictions.forget(name)


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _stage_of(node: Node) -> tuple[str, bool]:
    return node.metadata.labels.get(NodeLabel.UPGRADE_STATE, ""), node.spec.unschedulable
