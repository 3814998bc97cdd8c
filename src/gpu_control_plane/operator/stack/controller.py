"""Carries out the ClusterPolicy in force: one controller brings its objects into the cluster, another one reports.

The first is woken by what changes the objects: the policy, the kinds of nodes, ConfigMaps that people made, and other
hands on the objects themselves. The second by what changes the report: numbers of DaemonSets, pods, labels, upgrades.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import msgspec
import structlog

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import FEATURE_PREFIX
from gpu_control_plane.api.nvidia.status import UpgradeReport
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import Key, Requeue, Runtime
from gpu_control_plane.kube.changes import labels_changed, spec_changed
from gpu_control_plane.kube.errors import ApiError
from gpu_control_plane.kube.objects import Object, controlled_by
from gpu_control_plane.kube.pace import Pace
from gpu_control_plane.operator.charge import Charge
from gpu_control_plane.operator.facts import NodeKind, gpu_present, kind_of
from gpu_control_plane.operator.openshift import OpenShiftWatch
from gpu_control_plane.operator.stack.apply import Applied, NotWritten, Writer
from gpu_control_plane.operator.stack.events import tell_applied
from gpu_control_plane.operator.stack.leftovers import Asked, goes, leaves_pods
from gpu_control_plane.operator.stack.live import touched
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.namespace import OperandNamespace
from gpu_control_plane.operator.stack.policies import InForce
from gpu_control_plane.operator.stack.readiness import Standing
from gpu_control_plane.operator.stack.render import Rendered, render_policy
from gpu_control_plane.operator.stack.reporter import Reporter
from gpu_control_plane.operator.stack.stage import Platform, Stage
from gpu_control_plane.operator.stack.standings import Standings, of_the_policy, tolerations_of
from gpu_control_plane.operator.stack.states import STATES
from gpu_control_plane.operator.stack.status import Picture
from gpu_control_plane.operator.views import DaemonSet

_THE_POLICY: Final = Key("cluster-policy")
_PAUSE: Final = 0.3
"""Seconds between two passes: a fleet that joins at once is rendered a few times, not once for each node."""
_FEATURED: Final = "operator.stack/featured"
_ON_OPENSHIFT: Final = ("SecurityContextConstraints", "PrometheusRule")

_log = structlog.get_logger(component="operator.stack")


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the stack is told by the parts beside it."""

    unlabelled: Callable[[], set[str]]
    host_problems: Callable[[], Mapping[str, str]]
    upgrade: Callable[[], UpgradeReport | None]
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
        self._stage: Stage | None = None
        self._rendered: list[Rendered] = []
        self._done: tuple[str, int] | None = None
        self._problems: dict[str, str] = {}
        self._strays = ""
        self._pace = Pace(_PAUSE)
        self._asked = self._answered = 0
        self._namespace = OperandNamespace(runtime, platform.namespace)
        charge.nodes.index(_FEATURED, lambda node: (_FEATURED,) if _featured(node) else ())
        self._converging = runtime.controller("stack", self._converge, workers=1)
        self._converging.watch(charge.policies, self._ask, when=spec_changed)
        self._converging.watch(charge.nodes, self._ask, when=_kind_changed)
        self._converging.watch(standings.daemonsets, self._ask, when=_fell_idle)
        self._converging.watch(standings.pods, self._ask, when=lambda old, new: of_the_policy(old) and new is None)
        self._converging.watch(self._namespace.cache, self._ask, when=labels_changed)
        for cache in writer.watched():
            self._converging.watch(cache, self._ask, when=touched)
        self._reporter = Reporter(runtime, charge, self._picture, now)
        standings.on_change(self._reporter.wake)
        charge.nodes.on_change(self._features_changed)

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
        if found is None or found.spec is None or found.problem:
            self._stage, self._rendered, self._done = None, [], None
            self._problems, self._strays = {}, ""
        else:
            await self._bring(found, self._look(found))
        self._answered = asked
        self._reporter.wake()
        if self._problems or self._strays:
            raise NotWritten("; ".join(filter(None, (*self._problems.values(), self._strays))))
        return None

    def _ask(self, _item: Object) -> tuple[Key, ...]:
        """Something changed that may need a pass; until it is over, nobody is told that all is well."""
        self._asked += 1
        return (_THE_POLICY,)

    def _features_changed(self, old: Node | None, new: Node | None) -> None:
        if _featured(old) != _featured(new):
            self._reporter.wake()

    def _look(self, found: InForce) -> Stage:
        """The policy and what is around it at this moment."""
        assert found.spec is not None  # noqa: S101 - the caller checked
        if self._around.openshift.facts() is not None:
            for kind in _ON_OPENSHIFT:
                self._writer.follow(kind, lambda _old, _new: self.wake())
        kinds: Counter[NodeKind] = Counter(map(kind_of, self._charge.gpu_nodes()))
        return Stage(policy=found.spec, platform=self.platform(), kinds=dict(kinds))

    async def _bring(self, found: InForce, stage: Stage) -> None:
        policy, before = found.policy, self._rendered
        if stage != self._stage:
            self._rendered = render_policy(stage, controlled_by(policy.resource, policy.name, policy.metadata.uid))
        again = (policy.metadata.uid, policy.metadata.generation)
        drifted = self._done == again and self._rendered == before
        manifests = [manifest for rendered in self._rendered for manifest in rendered.manifests]
        applied = Applied()
        try:
            await self._mark_namespace(stage, applied)
            await self._writer.apply(manifests, applied)
            await self._prune(policy, stage, manifests, applied)
        finally:
            tell_applied(self._runtime.events, policy, applied, drifted=drifted)
        self._stage, self._done = stage, again
        self._problems, self._strays = _by_state(self._rendered, applied)
        if applied.created or applied.repaired or applied.removed:
            _log.info(
                "stack written",
                policy=policy.name,
                created=len(applied.created),
                changed=len(applied.repaired),
                removed=len(applied.removed),
            )

    async def _mark_namespace(self, stage: Stage, applied: Applied) -> None:
        name = f"Namespace/{self._platform.namespace}"
        try:
            if await self._namespace.mark(stage.policy):
                applied.repaired.append(name)
        except ApiError as error:
            applied.problems[name] = str(error)

    async def _prune(
        self, policy: StoredClusterPolicy, stage: Stage, manifests: list[Manifest], applied: Applied
    ) -> None:
        """Remove what the policy no longer asks for."""
        enabled = [rendered for rendered in self._rendered if rendered.enabled]
        asked = Asked(
            policy=policy.metadata.uid,
            enabled=frozenset(rendered.state for rendered in enabled),
            unrendered=frozenset(rendered.state for rendered in enabled if rendered.problem),
            handed_over=frozenset(state.name for state in STATES if state.orphan(stage.policy)),
            policy_drivers=self._standings.policy_drivers(),
            cards=bool(stage.kinds),
            needless=lambda name, state: self._idle(name) or self._superseded(name, state),
        )
        keep = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
        await self._writer.prune(
            keep, lambda live: goes(live, asked), applied, orphan=lambda live: leaves_pods(live, asked)
        )

    def _idle(self, name: str) -> bool:
        """Whether a DaemonSet that is no longer asked for serves no node."""
        found = self._standings.daemonsets.get(name, self._platform.namespace)
        return found is None or found.idle

    def _superseded(self, name: str, state: str) -> bool:
        """Whether a DaemonSet that is no longer asked for is in the way of another one of its state, as when drivers
        are to come precompiled from now on."""
        found = self._standings.daemonsets.get(name, self._platform.namespace)
        if found is None:
            return True
        served = self._standings.selected(found.spec.template.spec.node_selector)
        return any(
            served & self._standings.selected(manifest["spec"]["template"]["spec"]["nodeSelector"])
            for rendered in self._rendered
            for manifest in rendered.manifests
            if rendered.state == state and manifest["kind"] == "DaemonSet"
        )

    def _picture(self, found: InForce) -> Picture | None:
        """What the report is made from; None while nothing has been done yet that there were to report about."""
        policy = found.policy
        generation = policy.metadata.generation
        if not found.problem and self._done != (policy.metadata.uid, generation):
            return None
        return Picture(
            generation=generation,
            namespace=self._platform.namespace,
            rendered=self._rendered,
            standings={rendered.state: self._standing(rendered) for rendered in self._rendered},
            write_problems=self._problems,
            gpu_nodes=self._charge.gpu_node_count(),
            feature_labels=self._charge.nodes.count(_FEATURED, _FEATURED) > 0,
            unlabelled=sorted(self._around.unlabelled()),
            host_problems=self._around.host_problems(),
            converged=self._answered == self._asked,
            upgrade=self._around.upgrade(),
            drivers_pending=self._around.drivers_pending(),
            unknown=found.read.unknown if found.read is not None else (),
            problem=found.problem or self._strays,
            now=self._clock(),
        )

    def _standing(self, rendered: Rendered) -> tuple[Standing, ...]:
        return tuple(
            self._standings.of(manifest["metadata"]["name"], tolerations_of(manifest["spec"]["template"]["spec"]))
            for manifest in rendered.manifests
            if manifest["kind"] == "DaemonSet"
        )


def _by_state(rendered: list[Rendered], applied: Applied) -> tuple[dict[str, str], str]:
    """What could not be written, by the state it belongs to, and what belongs to none."""
    found: dict[str, str] = {}
    strays = dict(applied.problems)
    for state in rendered:
        names = [f"{manifest['kind']}/{manifest['metadata']['name']}" for manifest in state.manifests]
        problems = [f"{name}: {strays.pop(name)}" for name in names if name in strays]
        if problems:
            found[state.state] = "; ".join(problems)
    return found, "; ".join(f"{name}: {problem}" for name, problem in strays.items())


def _fell_idle(old: DaemonSet | None, new: DaemonSet | None) -> bool:
    """Whether a DaemonSet serves no node any more: one that is no longer asked for may go then."""
    return old is not None and new is not None and old.serves and not new.serves


def _kind_changed(old: Node | None, new: Node | None) -> bool:
    return _kind(old) != _kind(new)


def _kind(node: Node | None) -> NodeKind | None:
    return kind_of(node) if node is not None and gpu_present(node.metadata.labels) else None


def _featured(node: Node | None) -> bool:
    return node is not None and any(label.startswith(FEATURE_PREFIX) for label in node.metadata.labels)
