"""A small model of a cluster whose drivers are upgraded: nodes as values with versions, and everything else that acts.

Writes are guarded by version as the API server guards them. The clock jumps; the kubelet, the DaemonSet controller,
the validator and our agent do their part when its time has come. What must never happen is checked at every write.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import PodDeletion, UpgradePolicy
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.operator.upgrade.actions import PAUSED
from gpu_control_plane.operator.upgrade.deadlines import MOST_RENEWALS
from gpu_control_plane.operator.upgrade.gpu_pods import gpu_pods
from gpu_control_plane.operator.upgrade.node_view import AgentView, DriverPod, NodeView, ValidatorPod
from gpu_control_plane.operator.upgrade.rollout import scaled_value
from unit.operator.upgrade.builders import NOW, gpu_pod

BAD_TO_TOUCH = frozenset({UpgradeState.NONE, UpgradeState.DONE, UpgradeState.REQUIRED, UpgradeState.FAILED})
NEVER = float("inf")


class Conflict(Exception):
    """The node has changed since."""


class NodeBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How a node behaves. Times are seconds; what takes for ever never happens."""

    build: float = 90.0
    """Until a new driver pod is ready."""
    crashes: bool = False
    grace: float = 20.0
    """Until an evicted pod is gone."""
    budget: float = 0.0
    """From the first question on, evictions are refused for so long."""
    check: float = 30.0
    """Until the validator, or the agent's checks, are through."""
    validator: bool = True
    agent: bool = False
    deaf: bool = False
    """The agent does not release the driver."""
    lost_at: UpgradeState | None = None
    """In this state the machine goes, for ever."""


class NodeModel(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server knows of one node."""

    name: str
    version: int = 1
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    unschedulable: bool = False
    ready: bool = True
    driver: DriverPod | None = None
    revision: int = 0
    """Revision of its driver pod."""
    validated: bool = True
    quiesced: bool = False
    checked_at: float = 0.0
    pods: Mapping[str, Pod] = {}
    behaviour: NodeBehaviour = NodeBehaviour()
    refuses_until: float = 0.0

    @property
    def state(self) -> UpgradeState:
        return UpgradeState(self.labels.get(NodeLabel.UPGRADE_STATE, ""))

    def view(self, revision: int, leaving: Mapping[str, float] | None = None) -> NodeView:
        asked = leaving or {}
        driver = self.driver
        if driver is not None:
            current, gone = self.revision == revision, driver.leaving or driver.uid in asked
            driver = replace(driver, current=current, leaving=gone)
        passed = {"driver": self.checked_at, "cuda": self.checked_at}
        return NodeView(
            name=self.name,
            labels=self.labels,
            annotations=self.annotations,
            unschedulable=self.unschedulable,
            ready=self.ready,
            drivers=(driver,) if driver is not None else (),
            validators=(ValidatorPod(name="validator", ready=self.validated),) if self.behaviour.validator else (),
            agent=AgentView(alive=self.ready, quiesced=self.quiesced, passed=passed) if self.behaviour.agent else None,
            pods=tuple(self.pods.values()),
            leaving=asked,
            wanted=str(revision),
        )


class ClusterModel:
    """The state of the cluster, and what acts on it besides the operator."""

    def __init__(self, policy: UpgradePolicy, nodes: Iterable[tuple[str, NodeBehaviour]], pods_each: int = 1) -> None:
        self.policy = policy
        self.clock = NOW
        self.revision = 1
        self.nodes: dict[str, NodeModel] = {}
        self.writes = 0
        self.touched: set[str] = set()
        """Nodes of which a pod was asked to leave, or the driver pod was deleted."""
        self.ever_failed: set[str] = set()
        self.most_out = 0
        """The most nodes that were out of service when one more was taken out of it."""
        self._versions = itertools.count(2)
        self._pods = itertools.count(1)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._accepted: list[tuple[str, str]] = []
        self._asked: dict[tuple[str, str], float] = {}
        self._views: dict[str, tuple[tuple[int, int], NodeView]] = {}
        self._waits: dict[str, tuple[tuple[int, int, UpgradePolicy], float]] = {}
        for name, behaviour in nodes:
            pods = [gpu_pod(f"train-{number}", node=name) for number in range(pods_each)]
            self.nodes[name] = NodeModel(
                name=name,
                driver=DriverPod(name=f"driver-{name}", uid=f"{name}-0", created=NOW),
                revision=1,
                pods={pod.metadata.uid: pod for pod in pods},
                behaviour=behaviour,
                checked_at=NOW,
            )

    # Decisions are pure: the same view gives the same answer until its time is over. Caching it saves most of the work.

    def view(self, node: NodeModel) -> NodeView:
        key = (node.version, self.revision)
        held = self._views.get(node.name)
        if held is None or held[0] != key:
            held = self._views[node.name] = (key, node.view(self.revision))
        return held[1]

    def waits(self, node: NodeModel) -> float | None:
        """Until when such a node is known to wait."""
        key, until = self._waits.get(node.name, ((0, 0, self.policy), 0.0))
        return until if key == (node.version, self.revision, self.policy) and self.clock < until else None

    def remember_wait(self, node: NodeModel, until: float) -> None:
        self._waits[node.name] = (node.version, self.revision, self.policy), until

    # What the operator may do.

    def patch(self, name: str, body: Mapping[str, Any], version: int) -> NodeModel:
        node = self.nodes[name]
        if node.version != version:
            raise Conflict(name)
        self.writes += 1
        metadata = body.get("metadata", {})
        written = replace(
            node,
            labels=_merged(node.labels, metadata.get("labels", {})),
            annotations=_merged(node.annotations, metadata.get("annotations", {})),
            unschedulable=bool(body.get("spec", {}).get("unschedulable", node.unschedulable)),
        )
        self._check_slot(node, written)
        self._check_deadlines(node, written)
        if written.state is UpgradeState.FAILED:
            self.ever_failed.add(name)
        self._put(written)
        self._react(node, written)
        return self.nodes[name]

    def evict(self, name: str, uid: str) -> str | None:
        """Why not, or None."""
        node = self.nodes[name]
        self.writes += 1
        assert node.state not in BAD_TO_TOUCH, f"a pod of {name} was touched in the state {node.state!r}"
        assert node.unschedulable, f"pods leave {name} while others may come"
        self.touched.add(name)
        if node.behaviour.budget and not node.refuses_until:
            node = self._put(replace(node, refuses_until=self.clock + node.behaviour.budget))
        self._asked.setdefault((name, uid), self.clock)
        if self.clock < node.refuses_until:
            return "it would violate the pod's disruption budget"
        if uid in node.pods:
            self._accepted.append((name, uid))
            ends = datetime.fromtimestamp(self.clock + node.behaviour.grace, UTC)
            leaving = replace(node.pods[uid], metadata=replace(node.pods[uid].metadata, deletion_timestamp=ends))
            self._put(replace(node, pods={**node.pods, uid: leaving}))
            self.after(node.behaviour.grace, lambda: self._pod_gone(name, uid))
        return None

    def delete_driver(self, name: str, uid: str) -> None:
        node = self.nodes[name]
        self.writes += 1
        assert node.state is UpgradeState.POD_RESTART_REQUIRED, f"the driver of {name} was deleted in {node.state!r}"
        self.touched.add(name)
        driver = node.driver
        if driver is None or driver.uid != uid or driver.leaving:
            return
        assert driver.only_restarts or not gpu_pods(node.pods.values(), frozenset()), f"a pod of {name} uses the driver"
        self._check_agent(node)
        self._put(replace(node, driver=replace(driver, leaving=True, ready=False), validated=False))
        self.after(5.0, lambda: self._driver_gone(name, uid))

    # What others do.

    def after(self, seconds: float, happening: Callable[[], None]) -> None:
        if seconds < NEVER:
            heapq.heappush(self._agenda, (self.clock + seconds, next(self._order), happening))

    @property
    def next_happening(self) -> float:
        return self._agenda[0][0] if self._agenda else NEVER

    def advance(self, moment: float) -> None:
        while self._agenda and self._agenda[0][0] <= moment:
            due, _, happening = heapq.heappop(self._agenda)
            self.clock = max(self.clock, due)
            happening()
        self.clock = max(self.clock, moment)

    def change(self, name: str, **fields: object) -> None:
        """Something happens to the node without the operator."""
        self._put(replace(self.nodes[name], **fields))

    def label(self, name: str, key: str, value: str | None) -> None:
        self.change(name, labels=_merged(self.nodes[name].labels, {key: value}))

    def annotate(self, name: str, key: str, value: str | None) -> None:
        self.change(name, annotations=_merged(self.nodes[name].annotations, {key: value}))

    def come_back(self, name: str, behaviour: NodeBehaviour) -> None:
        """A machine that was lost, or behaved badly, goes on where it stopped."""
        self.change(name, ready=True, behaviour=behaviour, refuses_until=0.0)
        for node, uid in self._accepted:
            if node == name:
                self.after(behaviour.grace, lambda uid=uid: self._pod_gone(name, uid))  # type: ignore[misc]
        driver = self.nodes[name].driver
        if driver is None:
            self.after(1.0, lambda: self._driver_made(name, f"{name}-{next(self._pods)}"))
        elif driver.leaving:
            self.after(5.0, lambda: self._driver_gone(name, driver.uid))
        elif not driver.ready:
            self.change(name, driver=replace(driver, restarts=0))
            self.after(behaviour.build, lambda: self._driver_ready(name, driver.uid))
        self.after(3.0, lambda: self._agent_answers(name))
        self.after(behaviour.check, lambda: self._checked(name))

    def publish_driver(self) -> None:
        """The DaemonSet has another template."""
        self.revision += 1
        for node in self.nodes.values():
            self._put(node)

    # How things come about.

    def _put(self, node: NodeModel) -> NodeModel:
        held = self.nodes[node.name] = replace(node, version=next(self._versions))
        return held

    def _react(self, before: NodeModel, after: NodeModel) -> None:
        name, behaviour = after.name, after.behaviour
        if behaviour.lost_at is not None and after.state is behaviour.lost_at:
            self.change(name, ready=False)
            return
        paused = after.labels.get(NodeLabel.AGENT) == PAUSED
        if paused != (before.labels.get(NodeLabel.AGENT) == PAUSED) and behaviour.agent and not behaviour.deaf:
            self.after(3.0, lambda: self._agent_answers(name))

    def _agent_answers(self, name: str) -> None:
        node = self.nodes[name]
        paused = node.labels.get(NodeLabel.AGENT) == PAUSED
        if node.ready and node.quiesced != paused:
            self._put(replace(node, quiesced=paused))
            if not paused:
                self.after(node.behaviour.check, lambda: self._checked(name))

    def _checked(self, name: str) -> None:
        node = self.nodes[name]
        if node.ready and node.driver is not None and node.driver.ready:
            self._put(replace(node, checked_at=self.clock, validated=node.behaviour.check < NEVER))

    def _pod_gone(self, name: str, uid: str) -> None:
        node = self.nodes[name]
        if node.ready:
            self._put(replace(node, pods={key: pod for key, pod in node.pods.items() if key != uid}))

    def _driver_gone(self, name: str, uid: str) -> None:
        node = self.nodes[name]
        if not node.ready or node.driver is None or node.driver.uid != uid:
            return
        fresh = f"{name}-{next(self._pods)}"
        self._put(replace(node, driver=None))
        self.after(1.0, lambda: self._driver_made(name, fresh))

    def _driver_made(self, name: str, uid: str) -> None:
        node = self.nodes[name]
        if not node.ready or node.driver is not None:
            return
        pod = DriverPod(
            name=f"driver-{name}",
            uid=uid,
            ready=False,
            created=self.clock,
            restarts=11 if node.behaviour.crashes else 0,
        )
        self._put(replace(node, driver=pod, revision=self.revision))
        if not node.behaviour.crashes:
            self.after(node.behaviour.build, lambda: self._driver_ready(name, uid))

    def _driver_ready(self, name: str, uid: str) -> None:
        node = self.nodes[name]
        if node.ready and node.driver is not None and node.driver.uid == uid and not node.driver.leaving:
            self._put(replace(node, driver=replace(node.driver, ready=True)))
            self.after(node.behaviour.check, lambda: self._checked(name))

    # What must never happen.

    def holding(self) -> int:
        return sum(self.view(node).occupies_slot for node in self.nodes.values())

    def _check_slot(self, before: NodeModel, after: NodeModel) -> None:
        was, now = before.view(self.revision), after.view(self.revision)
        if was.occupies_slot or not now.occupies_slot:
            return
        assert not was.skipped, f"{after.name} is to be left alone"
        others = [node for node in self.nodes.values() if node.name != after.name]
        busy = sum(self.view(node).occupies_slot for node in others) + 1
        parallel = self.policy.max_parallel_upgrades
        assert not parallel or busy <= parallel, f"{busy} nodes in progress, {parallel} allowed"
        most = scaled_value(len(self.nodes), self.policy.max_unavailable)
        if not was.unavailable and most < len(self.nodes):
            out = sum(self.view(node).unavailable for node in others) + 1
            self.most_out = max(self.most_out, out)
            assert out <= most, f"{out} nodes out of service, {most} allowed"

    def _check_deadlines(self, before: NodeModel, after: NodeModel) -> None:
        """No upgrade fails because of pods that were not evicted, or had no time to leave, unless operators died too
        often."""
        why = after.annotations.get(NodeAnnotation.FAILURE, "")
        if after.state is not UpgradeState.FAILED or "did not leave" not in why:
            return
        if before.annotations.get(NodeAnnotation.RENEWALS) == str(MOST_RENEWALS):
            return
        draining = before.state is UpgradeState.DRAIN_REQUIRED and self.policy.drain is not None
        rules = (self.policy.drain if draining else self.policy.pod_deletion) or PodDeletion()
        for uid, pod in before.pods.items():
            asked, ends = self._asked.get((after.name, uid)), pod.metadata.deletion_timestamp
            assert asked is not None, f"{after.name} failed for {uid}, which was never asked to leave"
            fair = self.clock - asked >= rules.timeout_seconds / 2
            assert fair or (ends is not None and self.clock >= ends.timestamp()), f"{uid} had no time to leave"

    def _check_agent(self, node: NodeModel) -> None:
        waited = self.clock - float(node.annotations[NodeAnnotation.STEP_SINCE])
        free = not node.behaviour.agent or node.quiesced or not node.ready
        assert free or waited >= 59, f"the agent of {node.name} held the driver"


def _merged(held: Mapping[str, str], news: Mapping[str, str | None]) -> dict[str, str]:
    merged: dict[str, str | None] = {**held, **{str(key): value for key, value in news.items()}}
    return {key: value for key, value in merged.items() if value is not None}
