"""A Pod as our controllers read it. One view for all of them, so that one process holds a Pod once.

At 5,000 nodes the namespace of our programs and NVIDIA's operands has tens of thousands of Pods. So the view is trimmed
while it is decoded: it keeps the two conditions, the environment variables and the volumes that a controller decides
by, and drops the affinity of a Pod that has a node. A Pod of a driver takes 4 KiB then instead of 9.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.kube.objects import Object, OwnerReference, Resource
from gpu_control_plane.kube.quantities import parse_quantity

NAME_LABEL: Final = "app.kubernetes.io/name"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
PRODUCT: Final = "gpu-control-plane"
"""The value of `app.kubernetes.io/name` on every Pod of our chart."""
AGENT: Final = "agent"
"""The value of `app.kubernetes.io/component` on the agent's Pods."""

DRIVER_CONFIG_DIGEST: Final = "DRIVER_CONFIG_DIGEST"
"""The environment variable of a driver container that stands for the driver and its configuration."""
KEPT_VARIABLES: Final = frozenset({DRIVER_CONFIG_DIGEST})
KEPT_CONDITIONS: Final = frozenset({"Ready", "PodScheduled"})

UNSCHEDULED_FIELDS: Final = "status.phase=Pending,spec.nodeName="
"""The field selector of Pods without a node: the only ones that can wait for a card."""

BY_NODE: Final = "node"
"""The index that files Pods under the node they run on; add it with `pods.index(BY_NODE, node_of)`."""

_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_MOST_UNITS: Final = Decimal(2**63 - 1)
"""The largest quantity that the API server stores."""
_SAME_MOMENT: Final = timedelta(seconds=5)
"""How far apart the kubelet may write the end of a container and the change of its Pod's condition Ready."""


class _View(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Base of every part."""

    def _keep(self, field: str, kept: Iterable[object]) -> None:
        """Leave out what no controller reads, while the part is made: afterwards it is frozen."""
        if getattr(self, field):
            msgspec.structs.force_setattr(self, field, tuple(kept))


class EnvVar(_View, frozen=True, kw_only=True):
    name: str
    value: str = ""


class ContainerResources(_View, frozen=True, kw_only=True):
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}


_NO_RESOURCES: Final = ContainerResources()


class Container(_View, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    env: tuple[EnvVar, ...] = ()
    """Only the variables in `KEPT_VARIABLES`."""
    resources: ContainerResources = _NO_RESOURCES
    restart_policy: str = ""
    """`Always` makes an init container a sidecar, which runs beside those that come after it."""

    def __post_init__(self) -> None:
        self._keep("env", (held for held in self.env if held.name in KEPT_VARIABLES))
        if self.resources == _NO_RESOURCES:
            msgspec.structs.force_setattr(self, "resources", _NO_RESOURCES)

    @property
    def resource_names(self) -> frozenset[str]:
        """The resources it asks for, as a request or as a limit."""
        return frozenset(self.resources.limits) | frozenset(self.resources.requests)

    def limit_of(self, resource: str) -> Decimal:
        return parse_quantity(self.resources.limits.get(resource, "0"))


class EmptyDir(_View, frozen=True, kw_only=True):
    """That there is one is all that counts."""


class Volume(_View, frozen=True, kw_only=True):
    name: str = ""
    empty_dir: EmptyDir | None = None


class ResourceClaim(_View, frozen=True, kw_only=True):
    """A claim to devices, made by dynamic resource allocation."""

    name: str = ""


class NodeField(_View, frozen=True, kw_only=True):
    """A condition on a field of nodes; the only field there is, is the name."""

    operator: str = "In"
    values: tuple[str, ...] = ()


class NodeExpression(_View, frozen=True, kw_only=True):
    """A condition on a label of nodes."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeTerm(_View, frozen=True, kw_only=True):
    match_fields: tuple[NodeField, ...] = ()
    match_expressions: tuple[NodeExpression, ...] = ()


class NodeTerms(_View, frozen=True, kw_only=True):
    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(_View, frozen=True, kw_only=True):
    required: NodeTerms = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=NodeTerms())


class Affinity(_View, frozen=True, kw_only=True):
    node_affinity: NodeAffinity = NodeAffinity()


_NO_AFFINITY: Final = Affinity()


class PodSpec(_View, frozen=True, kw_only=True):
    node_name: str = ""
    affinity: Affinity = _NO_AFFINITY
    """Only of a Pod that has no node yet."""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    """Only those of the kind emptyDir."""
    resource_claims: tuple[ResourceClaim, ...] = ()

    def __post_init__(self) -> None:
        self._keep("volumes", (held for held in self.volumes if held.empty_dir is not None))
        if self.node_name:
            msgspec.structs.force_setattr(self, "affinity", _NO_AFFINITY)

    @property
    def all_containers(self) -> Iterator[Container]:
        yield from self.init_containers
        yield from self.containers

    @property
    def target_node(self) -> str:
        """The node it is on, or the one that its DaemonSet made it for while no scheduler has sent it there."""
        if self.node_name:
            return self.node_name
        terms = self.affinity.node_affinity.required.node_selector_terms
        return next((name for term in terms for field in term.match_fields for name in field.values), "")


class Waiting(_View, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class Terminated(_View, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""
    exit_code: int = 0
    finished_at: datetime | None = None


class ContainerState(_View, frozen=True, kw_only=True):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(_View, frozen=True, kw_only=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    """How it was before its last restart."""

    @property
    def trouble(self) -> str:
        """Why it does not run, as the kubelet puts it, such as `ImagePullBackOff: no such image`; empty if it does."""
        state = self.state
        found = state.waiting or (state.terminated if state.terminated and state.terminated.exit_code else None)
        return ": ".join(part for part in (found.reason, found.message) if part) if found else ""


class PodCondition(_View, frozen=True, kw_only=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class PodStatus(_View, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    """Only `Ready` and `PodScheduled`."""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    def __post_init__(self) -> None:
        self._keep("conditions", (held for held in self.conditions if held.type in KEPT_CONDITIONS))

    @property
    def all_container_statuses(self) -> Iterator[ContainerStatus]:
        yield from self.init_container_statuses
        yield from self.container_statuses


class Pod(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def component(self) -> str | None:
        """Which component of our chart it is; None for a Pod of anything else."""
        labels = self.metadata.labels
        return labels.get(COMPONENT_LABEL, "") if labels.get(NAME_LABEL) == PRODUCT else None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that would replace it."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)

    @property
    def active(self) -> bool:
        """Whether it has neither ended nor been deleted."""
        return not self.deleting and self.status.phase not in _TERMINAL

    @property
    def ready(self) -> bool:
        """Whether its condition Ready is true."""
        held = self.condition("Ready")
        return held is not None and held.status == "True"

    @property
    def ready_changed_at(self) -> datetime | None:
        """Since when it has been ready, or has not."""
        held = self.condition("Ready")
        if held is not None and held.last_transition_time is not None:
            return held.last_transition_time
        return self.metadata.creation_timestamp

    @property
    def containers_ready(self) -> bool:
        """Whether it runs and the kubelet called each of its containers ready when it last answered."""
        statuses = self.status.container_statuses
        return self.status.phase == "Running" and bool(statuses) and all(status.ready for status in statuses)

    @property
    def available(self) -> bool:
        """Whether a DaemonSet counts it: its containers are ready, it is not being deleted, and Kubernetes has not set
        Ready to False because its node does not answer."""
        held = self.condition("Ready")
        refused = held is not None and held.status == "False"
        return self.containers_ready and not refused and not self.deleting

    @property
    def crashing(self) -> bool:
        """Whether a container ended when the Pod was last ready, or later: an older restart explains nothing."""
        ends = (status.last_state.terminated for status in self.status.all_container_statuses)
        moments = [end.finished_at for end in ends if end is not None and end.finished_at is not None]
        since = self.ready_changed_at
        return bool(moments) and (since is None or max(moments) >= since - _SAME_MOMENT)

    @property
    def unschedulable(self) -> bool:
        """Whether the scheduler has tried and found no node for it."""
        held = self.condition("PodScheduled")
        return not self.spec.node_name and held is not None and held.status == "False"

    @property
    def trouble(self) -> str:
        """The first thing that keeps it from running, with the container's name; empty when nothing does."""
        for status in self.status.all_container_statuses:
            if status.trouble:
                return f"{status.name}: {status.trouble}"
        held = self.condition("PodScheduled")
        if held is not None and held.status == "False":
            return f"{held.reason}: {held.message}"
        return self.status.message

    def condition(self, kind: str) -> PodCondition | None:
        return next((held for held in self.status.conditions if held.type == kind), None)

    @property
    def extended_resources(self) -> dict[str, int]:
        """The extended resources that it asks for, and how many units of each it needs at once. `ValueError` for a
        quantity that the API server would refuse."""
        units = {name: self.limit_of(name) for name in sorted(self.extended_resource_names)}
        return {name: count for name, count in units.items() if count > 0}

    @property
    def extended_resource_names(self) -> frozenset[str]:
        """The extended resources that its containers name in their limits, whatever the quantities."""
        limits = (container.resources.limits for container in self.spec.all_containers)
        return frozenset(name for limit in limits for name in limit if "/" in name)

    def limit_of(self, resource: str) -> int:
        """Units of an extended resource that it needs at once, on one node, as the scheduler counts them: those of its
        containers and sidecars, or those of an init container and the sidecars before it, whichever is more."""
        sidecars = most = Decimal(0)
        for container in self.spec.init_containers:
            asked = container.limit_of(resource)
            most = max(most, sidecars + asked)
            if container.restart_policy == "Always":
                sidecars += asked
        together = sum((container.limit_of(resource) for container in self.spec.containers), start=sidecars)
        return int(min(max(most, together), _MOST_UNITS))


class Toleration(_View, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PlacedSpec(PodSpec, frozen=True, kw_only=True):
    """With what it asks of nodes."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class WaitingPodSpec(PlacedSpec, frozen=True, kw_only=True):
    priority: int = 0


class WaitingPod(Pod, frozen=True):
    """A Pod that has no node yet, with what it asks of nodes."""

    spec: WaitingPodSpec = WaitingPodSpec()


def node_of(pod: Pod) -> Iterable[str]:
    """The function of the index `BY_NODE`."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()
