"""Carries out the active ClusterPolicy: one controller writes its objects, another one its status.

The first is woken by what changes the objects: the policy, the kinds of nodes, ConfigMaps that people made, and other
writers' changes of the objects. The second by what changes the status: DaemonSets, pods, labels, upgrades.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node, Taint
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import FEATURE_PREFIX
from gpu_control_plane.api.nvidia.status import UpgradeReport
from gpu_control_plane.kube import Key, Requeue, Runtime, Signal
from gpu_control_plane.kube.predicates import labels_changed, spec_changed
from gpu_control_plane.kube.rate_limit import RateLimit
from gpu_control_plane.kube.signal import Keyed
from gpu_control_plane.operator.active_policy import ActivePolicy
from gpu_control_plane.operator.cluster_policy import ParsedPolicy
from gpu_control_plane.operator.driver_pods import of_cluster_policy
from gpu_control_plane.operator.node_facts import NodeKind, is_gpu_node, node_kind
from gpu_control_plane.operator.stack.apply import ObjectsRefused, ObjectWriter
from gpu_control_plane.operator.stack.daemonset_readiness import DaemonSetReadiness, became_idle, became_updated
from gpu_control_plane.operator.stack.live import content_changed
from gpu_control_plane.operator.stack.namespace import OperandNamespace
from gpu_control_plane.operator.stack.operands.driver import secrets_of
from gpu_control_plane.operator.stack.platform import PlatformReader
from gpu_control_plane.operator.stack.reconcile import PolicyReconciler
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.status import PolicyStatusInput
from gpu_control_plane.operator.stack.status_reporter import PolicyStatusReporter

_ACTIVE_POLICY: Final = Key("cluster-policy")
_INTERVAL_SECONDS: Final = 0.3
"""Between two reconciles: a fleet that joins at once is rendered a few times, not once for each node."""
_FEATURES: Final = "operator.stack/features"


class StatusSources(msgspec.Struct, frozen=True, kw_only=True):
    """What other parts of the operator contribute to the status."""

    unlabelled: Callable[[], set[str]]
    host_problems: Callable[[], Mapping[str, str]]
    upgrade: Callable[[UpgradeReport | None], UpgradeReport | None]
    """The progress of upgrades, given the progress that the status has now."""
    drivers_pending: Callable[[], str]
    changed: Sequence[Signal]
    """Fired when any of these may have changed."""


class StackController:
    """The controllers of the ClusterPolicy."""

    def __init__(
        self, runtime: Runtime, active_policy: ActivePolicy, writer: ObjectWriter, readiness: DaemonSetReadiness, *,
        platform: PlatformReader, sources: StatusSources, now: Callable[[], datetime],
    ) -> None:  # fmt: skip
        self._active_policy = active_policy
        self._readiness = readiness
        self._platform = platform
        self._sources = sources
        self._clock = now
        namespace = OperandNamespace(runtime, platform.namespace)
        self._reconciler = PolicyReconciler(runtime.events, writer, readiness, namespace, unlabelled=sources.unlabelled)
        self._rate_limit = RateLimit(_INTERVAL_SECONDS)
        self._requested = self._done = 0
        """How many changes have asked for a reconcile, and how many of them the last one has seen."""
        self._reconciled = Signal("stack-reconciled")
        nodes = active_policy.nodes
        nodes.index(_FEATURES, lambda node: (_FEATURES,) if _has_features(node) else ())

        controller = runtime.controller("stack", self._reconcile, workers=1)
        controller.watch(active_policy.policies, self._request, when=spec_changed)
        controller.watch(active_policy.changed, self._request)
        controller.watch(nodes, self._request, when=_kind_changed)
        controller.watch(readiness.daemonsets, self._request, when=became_idle)
        controller.watch(readiness.daemonsets, self._request, when=became_updated)
        controller.watch(readiness.pods, self._request, when=lambda old, new: of_cluster_policy(old) and new is None)
        controller.watch(namespace.cache, self._request, when=labels_changed)
        for signal in sources.changed:
            controller.watch(signal, self._request, when=lambda _old, _new: self._reconciler.waits_for_labels)
        controller.watch(writer.live.optional_changed, self._request)
        for cache in writer.live.core():
            controller.watch(cache, self._request, when=content_changed)

        reported_nodes = Signal("reported-nodes").watch(nodes, when=_report_changed)
        signals = (readiness.changed, active_policy.changed, reported_nodes, self._reconciled, *sources.changed)
        PolicyStatusReporter(runtime, active_policy, self._status_input, now, signals)
        runtime.on_lead(self._reconciler.reset)

    async def _reconcile(self, key: Key) -> Requeue | None:
        await self._active_policy.platform_detected()
        if not self._active_policy.may_write():
            return None
        if wait := self._rate_limit.wait(key):
            return wait
        self._rate_limit.mark(key)
        requested = self._requested
        found, later = self._active_policy.current(), None
        if found is None:
            await self._reconciler.clean_up()
        elif found.spec is None or found.problem:
            self._reconciler.reset()
        else:
            render_input = await self._render_input(found.spec)
            await self._reconciler.reconcile(found.policy, render_input)
            later = self._platform.look_again(render_input.platform)
        self._done = requested
        self._reconciled.fire()
        if problem := self._reconciler.result.problem:
            raise ObjectsRefused(problem)
        return later

    def _request(self, _item: Keyed) -> tuple[Key, ...]:
        """Something changed that may need a reconcile; until that is over, the policy is not reported as ready."""
        self._requested += 1
        return (_ACTIVE_POLICY,)

    async def _render_input(self, spec: ClusterPolicySpec) -> RenderInput:
        await self._platform.follow_openshift_kinds()
        kinds: Counter[NodeKind] = Counter(map(node_kind, self._active_policy.gpu_nodes()))
        return RenderInput(policy=spec, platform=await self._platform.current(secrets_of(spec)), kinds=dict(kinds))

    def _status_input(self, found: ParsedPolicy) -> PolicyStatusInput | None:
        """What the status depends on; None until the policy has been reconciled in its present generation."""
        policy = found.policy
        if not found.problem and not self._reconciler.covers(policy):
            return None
        result, sources = self._reconciler.result, self._sources
        return PolicyStatusInput(
            generation=policy.metadata.generation,
            namespace=self._platform.namespace,
            rendered=result.rendered,
            readiness={state.state: self._readiness.of_state(state.daemonsets) for state in result.rendered},
            write_problems=result.problems,
            gpu_nodes=self._active_policy.gpu_node_count(),
            feature_labels=self._active_policy.nodes.count(_FEATURES, _FEATURES) > 0,
            unlabelled=sorted(sources.unlabelled()),
            host_problems=sources.host_problems(),
            converged=self._done == self._requested,
            upgrade=sources.upgrade(policy.status.upgrade),
            drivers_pending=sources.drivers_pending(),
            unknown=found.read.unknown if found.read is not None else (),
            problem=found.problem or result.other_problems,
            now=self._clock(),
        )


def _kind_changed(old: Node | None, new: Node | None) -> bool:
    return _kind(old) != _kind(new)


def _kind(node: Node | None) -> NodeKind | None:
    return node_kind(node) if node is not None and is_gpu_node(node.metadata.labels) else None


def _report_changed(old: Node | None, new: Node | None) -> bool:
    """The status says whether nodes have labels of Node Feature Discovery, and which GPU nodes have taints."""
    return _has_features(old) != _has_features(new) or _taints(old) != _taints(new)


def _taints(node: Node | None) -> tuple[Taint, ...]:
    return node.spec.taints if node is not None and is_gpu_node(node.metadata.labels) else ()


def _has_features(node: Node | None) -> bool:
    return node is not None and any(label.startswith(FEATURE_PREFIX) for label in node.metadata.labels)
