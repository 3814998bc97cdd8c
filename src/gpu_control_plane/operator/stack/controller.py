"""Carries out the ClusterPolicy in force: one controller brings its objects into the cluster, another one reports.

The first is woken by what changes the objects: the policy, the kinds of nodes, ConfigMaps that people made, and other
hands on the objects themselves. The second by what changes the report: numbers of DaemonSets, pods, labels, upgrades.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node, Taint
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import FEATURE_PREFIX
from gpu_control_plane.api.nvidia.status import UpgradeReport
from gpu_control_plane.kube import Key, Requeue, Runtime
from gpu_control_plane.kube.changes import labels_changed, spec_changed
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.kube.rate_limit import RateLimit
from gpu_control_plane.operator.active_policy import Charge
from gpu_control_plane.operator.cluster_policy import InForce
from gpu_control_plane.operator.node_facts import NodeKind, gpu_present, kind_of
from gpu_control_plane.operator.openshift import OpenShiftWatch
from gpu_control_plane.operator.stack.apply import NotWritten, Writer
from gpu_control_plane.operator.stack.daemonset_readiness import Standings, fell_idle, of_the_policy
from gpu_control_plane.operator.stack.live import touched
from gpu_control_plane.operator.stack.namespace import OperandNamespace
from gpu_control_plane.operator.stack.reconcile import Passes
from gpu_control_plane.operator.stack.render_input import Platform, Stage
from gpu_control_plane.operator.stack.status import Picture
from gpu_control_plane.operator.stack.status_reporter import Reporter

_THE_POLICY: Final = Key("cluster-policy")
_PAUSE: Final = 0.3
"""Seconds between two passes: a fleet that joins at once is rendered a few times, not once for each node."""
_FEATURED: Final = "operator.stack/featured"
_ON_OPENSHIFT: Final = ("SecurityContextConstraints", "PrometheusRule")


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the stack is told by the parts beside it."""

    unlabelled: Callable[[], set[str]]
    host_problems: Callable[[], Mapping[str, str]]
    upgrade: Callable[[UpgradeReport | None], UpgradeReport | None]
    """How far it has come, given what was last told."""
    drivers_pending: Callable[[], str]
    openshift: OpenShiftWatch


class Stack:
    """The controllers of the ClusterPolicy."""

    def __init__(
        self, runtime: Runtime, charge: Charge, writer: Writer, standings: Standings, *,
        platform: Platform, surroundings: Surroundings, now: Callable[[], datetime],
    ) -> None:  # fmt: skip
        self._runtime = runtime
        self._charge = charge
        self._writer = writer
        self._standings = standings
        self._platform = platform
        self._around = surroundings
        self._clock = now
        namespace = OperandNamespace(runtime, platform.namespace)
        self._passes = Passes(runtime, writer, standings, namespace)
        self._pace = RateLimit(_PAUSE)
        self._asked = self._answered = 0
        charge.nodes.index(_FEATURED, lambda node: (_FEATURED,) if _featured(node) else ())
        self._converging = runtime.controller("stack", self._converge, workers=1)
        self._converging.watch(charge.policies, self._ask, when=spec_changed)
        self._converging.watch(charge.nodes, self._ask, when=_kind_changed)
        self._converging.watch(standings.daemonsets, self._ask, when=fell_idle)
        self._converging.watch(standings.pods, self._ask, when=lambda old, new: of_the_policy(old) and new is None)
        self._converging.watch(namespace.cache, self._ask, when=labels_changed)
        for cache in writer.watched():
            self._converging.watch(cache, self._ask, when=touched)
        self._reporter = Reporter(runtime, charge, self._picture, now)
        standings.on_change(self._reporter.wake)
        charge.nodes.on_change(self._node_changed)
        runtime.on_lead(self._passes.rest)

    def wake(self) -> None:
        """Something changed that no cache shows: the rival, or a kind that the cluster has learned."""
        self._asked += 1
        self._converging.enqueue(_THE_POLICY)
        self._reporter.wake()

    def platform(self) -> Platform:
        """What the cluster around the policy is like at this moment."""
        return msgspec.structs.replace(
            self._platform,
            service_monitors=self._writer.knows("ServiceMonitor"),
            openshift=self._around.openshift.facts(),
            config_maps=self._writer.config_maps(),
            held=self._writer.held_variants(),
        )

    def report(self) -> None:
        """Something changed that the status tells."""
        self._reporter.wake()

    async def _converge(self, key: Key) -> Requeue | None:
        await self._around.openshift.known.wait()
        if not self._charge.may_write():
            return None
        if later := self._pace.wait(key):
            return later
        self._pace.mark(key)
        asked = self._asked
        found = self._charge.in_force()
        if found is None:
            await self._passes.leave()
        elif found.spec is None or found.problem:
            self._passes.rest()
        else:
            await self._passes.carry_out(found.policy, await self._look(found.spec))
        self._answered = asked
        self._reporter.wake()
        if problem := self._passes.outcome.problem:
            raise NotWritten(problem)
        return None

    def _ask(self, _item: Object) -> tuple[Key, ...]:
        """Something changed that may need a pass; until it is over, nobody is told that all is well."""
        self._asked += 1
        return (_THE_POLICY,)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        """The report tells whether nodes have labels of their features, and which GPU nodes take no pods."""
        if _featured(old) != _featured(new) or _taints(old) != _taints(new):
            self._reporter.wake()

    async def _look(self, spec: ClusterPolicySpec) -> Stage:
        """The policy and what is around it at this moment."""
        if self._around.openshift.facts() is not None:
            for kind in _ON_OPENSHIFT:
                await self._writer.follow(kind, lambda _old, _new: self.wake())
        kinds: Counter[NodeKind] = Counter(map(kind_of, self._charge.gpu_nodes()))
        return Stage(policy=spec, platform=self.platform(), kinds=dict(kinds))

    def _picture(self, found: InForce) -> Picture | None:
        """What the report is made from; None while nothing has been done yet that there were to report about."""
        policy = found.policy
        if not found.problem and not self._passes.covers(policy):
            return None
        outcome = self._passes.outcome
        return Picture(
            generation=policy.metadata.generation,
            namespace=self._platform.namespace,
            rendered=outcome.rendered,
            standings={state.state: self._standings.of_state(state.daemonsets) for state in outcome.rendered},
            write_problems=outcome.problems,
            gpu_nodes=self._charge.gpu_node_count(),
            feature_labels=self._charge.nodes.count(_FEATURED, _FEATURED) > 0,
            unlabelled=sorted(self._around.unlabelled()),
            host_problems=self._around.host_problems(),
            converged=self._answered == self._asked,
            upgrade=self._around.upgrade(policy.status.upgrade),
            drivers_pending=self._around.drivers_pending(),
            unknown=found.read.unknown if found.read is not None else (),
            problem=found.problem or outcome.strays,
            now=self._clock(),
        )


def _kind_changed(old: Node | None, new: Node | None) -> bool:
    return _kind(old) != _kind(new)


def _kind(node: Node | None) -> NodeKind | None:
    return kind_of(node) if node is not None and gpu_present(node.metadata.labels) else None


def _taints(node: Node | None) -> tuple[Taint, ...]:
    return node.spec.taints if node is not None and gpu_present(node.metadata.labels) else ()


def _featured(node: Node | None) -> bool:
    return node is not None and any(label.startswith(FEATURE_PREFIX) for label in node.metadata.labels)
