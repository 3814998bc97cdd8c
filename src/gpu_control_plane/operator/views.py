"""Pods, DaemonSets and their revisions as the software stack sees them: only the fields that decisions depend on.

One view of each for the whole operator, so that one process watches each kind once.
"""

from collections.abc import Iterable
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.kube.objects import Object, OwnerReference, Resource

REVISION_HASH = "controller-revision-hash"
"""Label of a DaemonSet's pod and of a ControllerRevision: which template they are of."""


class View(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Base of the parts of these views."""


class EnvVar(View, frozen=True, kw_only=True):
    name: str
    value: str = ""


class ContainerResources(View, frozen=True, kw_only=True):
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}


class Container(View, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    env: tuple[EnvVar, ...] = ()
    resources: ContainerResources = ContainerResources()

    @property
    def asks_for(self) -> frozenset[str]:
        """Names of the resources in its requests and limits."""
        return frozenset(self.resources.limits) | frozenset(self.resources.requests)


class EmptyDir(View, frozen=True, kw_only=True):
    """An emptyDir; none of its fields matters here."""


class Volume(View, frozen=True, kw_only=True):
    name: str = ""
    empty_dir: EmptyDir | None = None


class ResourceClaim(View, frozen=True, kw_only=True):
    """A pod's claim to devices, for dynamic resource allocation."""

    name: str = ""


class NodeField(View, frozen=True, kw_only=True):
    """A condition on a field of nodes; the only such field is the name."""

    values: tuple[str, ...] = ()


class NodeTerm(View, frozen=True, kw_only=True):
    match_fields: tuple[NodeField, ...] = ()


class NodeTerms(View, frozen=True, kw_only=True):
    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(View, frozen=True, kw_only=True):
    required: NodeTerms = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=NodeTerms())


class Affinity(View, frozen=True, kw_only=True):
    node_affinity: NodeAffinity = NodeAffinity()


class Placement(View, frozen=True, kw_only=True):
    """Of a pod's spec, the node it is on or meant for."""

    node_name: str = ""
    affinity: Affinity = Affinity()

    @property
    def meant_for(self) -> str:
        """The node it is on, or, before it is scheduled, the node for which its DaemonSet has created it."""
        if self.node_name:
            return self.node_name
        terms = self.affinity.node_affinity.required.node_selector_terms
        return next((name for term in terms for field in term.match_fields for name in field.values), "")


class PodSpec(Placement, frozen=True, kw_only=True):
    node_selector: dict[str, str] = {}
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()

    @property
    def all_containers(self) -> Iterable[Container]:
        yield from self.init_containers
        yield from self.containers


class Waiting(View, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class Terminated(View, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""
    exit_code: int = 0


class ContainerState(View, frozen=True, kw_only=True):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(View, frozen=True, kw_only=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()

    @property
    def trouble(self) -> str:
        """Why it does not run, as the kubelet reports it, such as `ImagePullBackOff: no such image`; empty if it
        does."""
        state = self.state
        found = state.waiting or (state.terminated if state.terminated and state.terminated.exit_code else None)
        return ": ".join(part for part in (found.reason, found.message) if part) if found else ""


class PodCondition(View, frozen=True, kw_only=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(View, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class OperandPod(Object, frozen=True):
    """A pod without what it requests: enough to say whether it is ready, and small enough to hold several per node."""

    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    spec: Placement = Placement()
    status: PodStatus = PodStatus()

    @property
    def controller(self) -> OwnerReference | None:
        """The controller that owns it and would replace it."""
        return controller_of(self)

    @property
    def all_ready(self) -> bool:
        """Whether it runs and each of its containers is ready."""
        statuses = self.status.container_statuses
        return self.status.phase == "Running" and bool(statuses) and all(status.ready for status in statuses)

    @property
    def counted_on(self) -> bool:
        """Whether it counts as ready: not while its node is unreachable, even if its containers were last ready."""
        refused = any(held.type == "Ready" and held.status == "False" for held in self.status.conditions)
        return self.all_ready and not refused and not self.deleting

    @property
    def trouble(self) -> str:
        """The first reason why it does not run, with the container's name; empty when it runs."""
        for status in (*self.status.init_container_statuses, *self.status.container_statuses):
            if status.trouble:
                return f"{status.name}: {status.trouble}"
        unscheduled = (
            held for held in self.status.conditions if held.type == "PodScheduled" and held.status == "False"
        )
        return next((f"{held.reason}: {held.message}" for held in unscheduled), self.status.message)


class Pod(OperandPod, frozen=True):
    """A pod with its containers, volumes and claims."""

    spec: PodSpec = PodSpec()


class TemplateMeta(View, frozen=True, kw_only=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class PodTemplate(View, frozen=True, kw_only=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()


class UpdateStrategy(View, frozen=True, kw_only=True):
    type: str = ""


class DaemonSetSpec(View, frozen=True, kw_only=True):
    template: PodTemplate = PodTemplate()
    update_strategy: UpdateStrategy = UpdateStrategy()


class DaemonSetStatus(View, frozen=True, kw_only=True):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_misscheduled: int = 0
    number_available: int = 0


ON_DELETE: Final = "OnDelete"
"""The update strategy of drivers: a pod is replaced only when it is deleted."""


class DaemonSet(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("apps", "v1", "DaemonSet", "daemonsets")

    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()

    @property
    def on_delete(self) -> bool:
        return self.spec.update_strategy.type == ON_DELETE

    @property
    def idle(self) -> bool:
        """Whether its controller has observed its present generation, and found no node for it and no pod too many."""
        numbers = self.status
        busy = numbers.desired_number_scheduled or numbers.number_misscheduled
        return numbers.observed_generation >= self.metadata.generation and not busy


class ControllerRevision(Object, frozen=True):
    """A template that a DaemonSet has or had; the one with the highest number is the present one."""

    resource: ClassVar[Resource] = Resource("apps", "v1", "ControllerRevision", "controllerrevisions")

    revision: int = 0

    @property
    def controller(self) -> OwnerReference | None:
        return controller_of(self)

    @property
    def hash(self) -> str:
        return self.metadata.labels.get(REVISION_HASH, "")


def newest(revisions: Iterable[ControllerRevision]) -> ControllerRevision | None:
    """The present one of a DaemonSet's revisions."""
    return max(revisions, key=lambda held: held.revision, default=None)


def controller_of(item: Object) -> OwnerReference | None:
    return next((owner for owner in item.metadata.owner_references if owner.controller), None)
