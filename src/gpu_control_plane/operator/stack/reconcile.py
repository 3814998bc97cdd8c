"""One pass after the other over the policy in force: what it asks for is rendered and written, what is left over goes.

What came of the last pass is remembered, for the report and to tell another hand's change from one of the policy.
"""

import msgspec
import structlog

from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import Runtime
from gpu_control_plane.kube.errors import ApiError, Conflict
from gpu_control_plane.kube.objects import controlled_by
from gpu_control_plane.operator.stack.apply import Applied, Writer
from gpu_control_plane.operator.stack.daemonset_readiness import Standings
from gpu_control_plane.operator.stack.events import tell_repaired
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.namespace import OperandNamespace
from gpu_control_plane.operator.stack.prune import asked_of, goes, leaves_pods
from gpu_control_plane.operator.stack.render import Rendered, render_policy
from gpu_control_plane.operator.stack.render_input import Stage

_log = structlog.get_logger(component="operator.stack")


class Outcome(msgspec.Struct, frozen=True):
    """What a pass came to."""

    rendered: tuple[Rendered, ...] = ()
    problems: dict[str, str] = {}
    """What could not be written, by state."""
    strays: str = ""
    """What could not be written and belongs to no state."""

    @property
    def problem(self) -> str:
        return "; ".join(filter(None, (*self.problems.values(), self.strays)))


class Passes:
    """Carries policies out, and remembers the outcome of the last time."""

    def __init__(self, runtime: Runtime, writer: Writer, standings: Standings, namespace: OperandNamespace) -> None:
        self._events = runtime.events
        self._writer = writer
        self._standings = standings
        self._namespace = namespace
        self._stage: Stage | None = None
        self._done: tuple[str, int] | None = None
        self._refused: frozenset[str] = frozenset()
        self.outcome = Outcome()

    def covers(self, policy: StoredClusterPolicy) -> bool:
        """Whether the outcome is that of this policy, as it is now."""
        return self._done == _version(policy)

    def rest(self) -> None:
        """The policy cannot be carried out: what runs goes on running."""
        self._stage, self._done, self.outcome = None, None, Outcome()

    async def leave(self) -> None:
        """No policy is left. Its objects go with it, but the namespace stays."""
        self.rest()
        await self._writer.finish()
        await self._namespace.mark(None)

    async def carry_out(self, policy: StoredClusterPolicy, stage: Stage) -> None:
        """Bring everything a policy asks for into the cluster, and take away what it no longer asks for."""
        before = rendered = self.outcome.rendered
        if stage != self._stage:
            rendered = tuple(render_policy(stage, controlled_by(policy.resource, policy.name, policy.metadata.uid)))
        applied = Applied()
        drifted = self.covers(policy) and rendered == before
        manifests = [manifest for state in rendered for manifest in state.manifests]
        try:
            await self._mark_namespace(stage, applied)
            await self._writer.apply(manifests, applied)
            await self._prune(policy, stage, rendered, applied)
        finally:
            if drifted:
                tell_repaired(self._events, policy, applied, refused=self._refused)
        self._stage, self._done, self._refused = stage, _version(policy), frozenset(applied.problems)
        self.outcome = Outcome(rendered, *_by_state(rendered, applied))
        if applied.created or applied.repaired or applied.removed:
            _log.info(
                "stack written",
                policy=policy.name,
                created=len(applied.created),
                changed=len(applied.repaired),
                removed=len(applied.removed),
            )

    async def _mark_namespace(self, stage: Stage, applied: Applied) -> None:
        name = f"Namespace/{self._namespace.name}"
        try:
            if await self._namespace.mark(stage):
                applied.repaired.append(name)
        except Conflict:
            raise
        except ApiError as error:
            applied.problems[name] = str(error)

    async def _prune(
        self, policy: StoredClusterPolicy, stage: Stage, rendered: tuple[Rendered, ...], applied: Applied
    ) -> None:
        manifests = [manifest for state in rendered for manifest in state.manifests]
        asked = asked_of(
            policy.metadata.uid,
            stage.policy,
            rendered,
            policy_drivers=self._standings.policy_drivers(),
            cards=bool(stage.kinds),
            needless=lambda name, state: self._needless(name, _daemonsets(rendered, state)),
        )
        keep = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
        await self._writer.prune(
            keep, lambda live: goes(live, asked), applied, orphan=lambda live: leaves_pods(live, asked)
        )

    def _needless(self, name: str, successors: list[Manifest]) -> bool:
        """Whether a DaemonSet that is no longer asked for serves no node, or is in the way of another one of its state,
        as when drivers are to come precompiled from now on."""
        found = self._standings.daemonset(name)
        if found is None or found.idle:
            return True
        served = self._standings.selected(found.spec.template.spec.node_selector)
        return any(
            served & self._standings.selected(manifest["spec"]["template"]["spec"]["nodeSelector"])
            for manifest in successors
        )


def _version(policy: StoredClusterPolicy) -> tuple[str, int]:
    return policy.metadata.uid, policy.metadata.generation


def _daemonsets(rendered: tuple[Rendered, ...], name: str) -> list[Manifest]:
    return [manifest for state in rendered if state.state == name for manifest in state.daemonsets]


def _by_state(rendered: tuple[Rendered, ...], applied: Applied) -> tuple[dict[str, str], str]:
    """What could not be written, by the state it belongs to, and what belongs to none."""
    found: dict[str, str] = {}
    strays = dict(applied.problems)
    for state in rendered:
        names = [f"{manifest['kind']}/{manifest['metadata']['name']}" for manifest in state.manifests]
        problems = [f"{name}: {strays.pop(name)}" for name in names if name in strays]
        if problems:
            found[state.state] = "; ".join(problems)
    return found, "; ".join(f"{name}: {problem}" for name, problem in strays.items())
