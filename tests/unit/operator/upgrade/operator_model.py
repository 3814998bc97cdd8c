"""The operator's loop on the cluster model: it sees copies of nodes, which may be outdated, loses all memory when it
dies, and may die after any write."""

import random

from msgspec.structs import replace

from gpu_control_plane.kube.expectations import LostAnswers
from gpu_control_plane.operator.upgrade.actions import DeleteDriverPod, EvictPods, NodePatch, Wait
from gpu_control_plane.operator.upgrade.node_view import NodeView, Refusal
from gpu_control_plane.operator.upgrade.rollout import rollout
from gpu_control_plane.operator.upgrade.step import step, switch_off
from unit.operator.upgrade.cluster_model import NEVER, ClusterModel, Conflict, NodeModel

_RETRY = 10.0
_MOST_STEPS = 40


class Unreachable(Exception):
    """The API server has written, and its answer is lost."""


class Killed(Exception):
    """The process has died after its last write."""


class OperatorModel:
    """One process. It dies after `writes` writes; with `stale` its cache is behind the cluster at
    times, and answers to its writes are lost."""

    def __init__(
        self, cluster: ClusterModel, rng: random.Random, *, writes: int | None = None, stale: bool = False
    ) -> None:
        self._cluster = cluster
        self._rng = rng
        self._left = writes
        self._stale = stale
        self._cache: dict[str, NodeModel] = dict(cluster.nodes)
        self._lost_answers = LostAnswers()
        self._asked: dict[str, dict[str, float]] = {}
        self._refusals: dict[str, dict[str, Refusal]] = {}
        self._since: dict[str, float] = {}

    def run(self) -> float:
        """Work until there is nothing to do; the time at which there may be something again."""
        until = NEVER
        names = list(self._cluster.nodes)
        first = self._rng.randrange(len(names))
        for name in names[first:] + names[:first]:
            until = min(until, self._advance(name))
        return min(until, self._schedule())

    def settle(self) -> float:
        """Work until a whole round changes nothing."""
        while True:
            before = self._cluster.writes
            self.see()
            until = self.run()
            if self._cluster.writes == before and not self._stale_somewhere():
                return until

    def see(self) -> None:
        """The watch delivers everything, or, for a stale cache, a random part."""
        for name, node in self._cluster.nodes.items():
            if not self._stale or self._rng.random() < 0.7:
                self._cache[name] = node

    def _stale_somewhere(self) -> bool:
        return any(self._cache[name].version != node.version for name, node in self._cluster.nodes.items())

    def _advance(self, name: str) -> float:
        known = self._cluster.waits(self._cache[name])
        if known is not None and name not in self._asked and name not in self._refusals:
            return known
        for _ in range(_MOST_STEPS):
            node = self._cache[name]
            view = self._view(node)
            found = step(view, self._cluster.policy, self._cluster.clock)
            match found:
                case Wait():
                    until = found.until if found.until is not None else NEVER
                    if name not in self._asked and name not in self._refusals:
                        self._cluster.remember_wait(node, until)
                    return until
                case NodePatch():
                    try:
                        self._cache[name] = self._cluster.patch(name, found.body(view), node.version)
                    except Conflict:
                        return NEVER
                    if found.state is not None:
                        self._forget(name)
                    self._spend()
                case EvictPods():
                    for pod in found.pods:
                        self._evict(name, pod.metadata.uid)
                case DeleteDriverPod():
                    self._cluster.delete_driver(name, found.pod.uid)
                    self._answered(name, found.pod.uid)
                    self._spend()
        raise AssertionError(f"{name} does not come to rest")

    def switch_off(self) -> None:
        for name, node in self._cluster.nodes.items():
            view = self._view(node)
            change = switch_off(view)
            if change is not None:
                self._cluster.patch(name, change.body(view), node.version)

    def _schedule(self) -> float:
        if self._lost_answers.possible:
            self._cache |= {name: held for name, held in self._cluster.nodes.items() if held.view(1).in_progress}
            self._lost_answers.read_back()
        views = [self._view(node) for node in self._cache.values()]
        plan = rollout(self._cluster.policy, views, self._cluster.clock)
        for name, first in plan.start.items():
            node = self._cache[name]
            try:
                with self._lost_answers.unless_answered():
                    written = self._cluster.patch(name, first.body(self._view(node)), node.version)
                    self._receive_answer()
            except (Conflict, Unreachable):
                return self._cluster.clock
            self._cache[name] = written
            self._spend()
        return NEVER

    def _receive_answer(self) -> None:
        if self._stale and self._rng.random() < 0.3:
            raise Unreachable

    def _view(self, node: NodeModel) -> NodeView:
        asked, refusals = self._asked.get(node.name), self._refusals.get(node.name)
        if not asked and not refusals:
            return self._cluster.view(node)
        since = self._since.get(node.name)
        return replace(node.view(self._cluster.revision, asked), refusals=refusals or {}, asked_since=since)

    def _evict(self, name: str, uid: str) -> None:
        why = self._cluster.evict(name, uid)
        if why is None:
            self._answered(name, uid)
        else:
            self._since.setdefault(name, self._cluster.clock)
            self._refusals.setdefault(name, {})[uid] = Refusal(self._cluster.clock + _RETRY, why)
        self._spend()

    def _answered(self, name: str, uid: str) -> None:
        self._since.setdefault(name, self._cluster.clock)
        self._asked.setdefault(name, {})[uid] = self._cluster.clock

    def _forget(self, name: str) -> None:
        self._asked.pop(name, None)
        self._since.pop(name, None)
        self._refusals.pop(name, None)

    def _spend(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                raise Killed
