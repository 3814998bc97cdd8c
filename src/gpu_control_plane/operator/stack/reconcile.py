"""Reconciles the active ClusterPolicy: renders and writes what it asks for, and deletes what it asks for no more.

The result of the last time is kept for the status, and to distinguish another writer's change from a change of the
policy.
"""

from collections.abc import Callable, Mapping, Set

import msgspec
import structlog

from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import EventRecorder
from gpu_control_plane.kube.errors import ApiError, Conflict
from gpu_control_plane.kube.objects import controlled_by
from gpu_control_plane.operator.stack.apply import ApplyResult, ObjectWriter
from gpu_control_plane.operator.stack.daemonset_readiness import DaemonSetReadiness
from gpu_control_plane.operator.stack.events import record_drift_repaired
from gpu_control_plane.operator.stack.manifest import Manifest, on_delete
from gpu_control_plane.operator.stack.namespace import OperandNamespace
from gpu_control_plane.operator.stack.prune import orphans_pods, prune_input, should_delete
from gpu_control_plane.operator.stack.render import RenderedState, render_policy
from gpu_control_plane.operator.stack.render_input import RenderInput

_log = structlog.get_logger(component="operator.stack")


class ReconcileResult(msgspec.Struct, frozen=True):
    """What was rendered, and what could not be written."""

    rendered: tuple[RenderedState, ...] = ()
    problems: dict[str, str] = {}
    """What could not be written, by state."""
    other_problems: str = ""
    """What could not be written and belongs to no state."""

    @property
    def problem(self) -> str:
        return "; ".join(filter(None, (*self.problems.values(), self.other_problems)))


class PolicyReconciler:
    """Carries out policies, and keeps the result of the last time."""

    def __init__(
        self,
        events: EventRecorder,
        writer: ObjectWriter,
        readiness: DaemonSetReadiness,
        namespace: OperandNamespace,
        *,
        unlabelled: Callable[[], Set[str]],
    ) -> None:
        """`unlabelled` are the nodes whose labels are about to be written."""
        self._events = events
        self._unlabelled = unlabelled
        self.waits_for_labels = False
        """Whether a DaemonSet was left as it is, since some of its nodes do not have the labels that it asks for."""
        self._writer = writer
        self._readiness = readiness
        self._namespace = namespace
        self._render_input: RenderInput | None = None
        self._reconciled: tuple[str, int] | None = None
        """UID and generation of the policy that `result` is of."""
        self._refused: frozenset[str] = frozenset()
        self.result = ReconcileResult()

    def covers(self, policy: StoredClusterPolicy) -> bool:
        """Whether `result` is of this policy in its present generation."""
        return self._reconciled == _version(policy)

    def reset(self) -> None:
        """Forget the result: the policy cannot be carried out, or another process has led since. What runs stays."""
        self._render_input, self._reconciled, self.result = None, None, ReconcileResult()
        self.waits_for_labels = False

    async def clean_up(self) -> None:
        """There is no policy any more. Its objects are garbage-collected with it, but the namespace stays."""
        self.reset()
        await self._writer.finish_interrupted()
        await self._namespace.update_labels(None)

    async def reconcile(self, policy: StoredClusterPolicy, render_input: RenderInput) -> None:
        """Write everything that a policy asks for, and delete what it asks for no more."""
        before = rendered = self.result.rendered
        if render_input != self._render_input:
            owner = controlled_by(policy.resource, policy.name, policy.metadata.uid)
            rendered = tuple(render_policy(render_input, owner))
        result = ApplyResult()
        same_policy = self.covers(policy) and rendered == before and not self.waits_for_labels
        try:
            await self._update_namespace(render_input, result)
            await self._writer.apply(self._applicable(rendered), result)
            await self._prune(policy, render_input, rendered, result)
        finally:
            if same_policy:  # so whatever was written undoes another writer's change
                record_drift_repaired(self._events, policy, result, refused=self._refused)
        self._render_input, self._reconciled = render_input, _version(policy)
        self._refused = frozenset(result.problems)
        self.result = ReconcileResult(rendered, *_problems_by_state(rendered, result))
        if result.created or result.repaired or result.removed:
            _log.info(
                "stack objects written",
                policy=policy.name,
                created=len(result.created),
                changed=len(result.repaired),
                removed=len(result.removed),
            )

    def _applicable(self, rendered: tuple[RenderedState, ...]) -> list[Manifest]:
        """The manifests without DaemonSets that would lose their pods to labels that are yet to be written. The
        toolkit, for one, takes its settings out of the container runtime when its pod ends."""
        manifests = _manifests(rendered)
        applicable = [manifest for manifest in manifests if not self._too_narrow(manifest)]
        self.waits_for_labels = len(applicable) < len(manifests)
        return applicable

    def _too_narrow(self, manifest: Manifest) -> bool:
        unlabelled = self._unlabelled()
        if manifest["kind"] != "DaemonSet" or not unlabelled:
            return False
        found = self._readiness.daemonset(manifest["metadata"]["name"])
        if found is None:
            return False
        held, wanted = found.spec.template.spec.node_selector, manifest["spec"]["template"]["spec"]["nodeSelector"]
        return narrows(held, wanted) and not unlabelled.isdisjoint(self._readiness.selected(held))

    async def _update_namespace(self, render_input: RenderInput, result: ApplyResult) -> None:
        name = f"Namespace/{self._namespace.name}"
        try:
            if await self._namespace.update_labels(render_input):
                result.repaired.append(name)
        except Conflict:
            raise
        except ApiError as error:
            result.problems[name] = str(error)

    async def _prune(
        self,
        policy: StoredClusterPolicy,
        render_input: RenderInput,
        rendered: tuple[RenderedState, ...],
        result: ApplyResult,
    ) -> None:
        asked = prune_input(
            policy.metadata.uid,
            render_input.policy,
            rendered,
            policy_drivers=self._readiness.has_policy_drivers(),
            old_pods=[state.state for state in rendered if any(map(self._runs_old_pods, state.daemonsets))],
            cards=bool(render_input.kinds),
            unneeded=lambda name, state: self._unneeded(name, _daemonsets(rendered, state)),
        )
        keep = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in _manifests(rendered)}
        await self._writer.prune(
            keep, lambda live: should_delete(live, asked), result, orphan=lambda live: orphans_pods(live, asked)
        )

    def _runs_old_pods(self, manifest: Manifest) -> bool:
        """Whether a DaemonSet whose pods are replaced one by one has some of an older template, by what was written
        last."""
        live = self._writer.live.get("DaemonSet", manifest["metadata"]["name"])
        if live is None or not on_delete(manifest["spec"]):
            return False
        return self._readiness.may_run_old_template(live.name, live.metadata.generation)

    def _unneeded(self, name: str, successors: list[Manifest]) -> bool:
        """Whether a DaemonSet that is not asked for any more has no node, or shares a node with another one of its
        state, as when drivers are precompiled from now on."""
        found = self._readiness.daemonset(name)
        if found is None or found.idle:
            return True
        served = self._readiness.selected(found.spec.template.spec.node_selector)
        return any(
            served & self._readiness.selected(manifest["spec"]["template"]["spec"]["nodeSelector"])
            for manifest in successors
        )


def narrows(held: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a node selector asks for labels of which the present one says nothing."""
    return bool(wanted.keys() - held.keys())


def _version(policy: StoredClusterPolicy) -> tuple[str, int]:
    return policy.metadata.uid, policy.metadata.generation


def _manifests(rendered: tuple[RenderedState, ...]) -> list[Manifest]:
    return [manifest for state in rendered for manifest in state.manifests]


def _daemonsets(rendered: tuple[RenderedState, ...], name: str) -> list[Manifest]:
    return [manifest for state in rendered if state.state == name for manifest in state.daemonsets]


def _problems_by_state(rendered: tuple[RenderedState, ...], result: ApplyResult) -> tuple[dict[str, str], str]:
    """What could not be written, by the state it belongs to, and what belongs to none."""
    by_state: dict[str, str] = {}
    others = dict(result.problems)
    for state in rendered:
        names = [f"{manifest['kind']}/{manifest['metadata']['name']}" for manifest in state.manifests]
        problems = [f"{name}: {others.pop(name)}" for name in names if name in others]
        if problems:
            by_state[state.state] = "; ".join(problems)
    return by_state, "; ".join(f"{name}: {problem}" for name, problem in others.items())
