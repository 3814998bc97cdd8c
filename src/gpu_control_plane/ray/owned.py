"""What the operator of Ray reads of the objects that it makes, and whose they are.

A label can be written by whoever may edit the namespace. An object belongs to an object of Ray if that is its
controller, by uid, and in the same namespace: whoever may write elsewhere may name any uid there.
"""

from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec

from gpu_control_plane.api.pod import ContainerStatus, PodCondition
from gpu_control_plane.api.ray.names import CREATED_BY, HEAD_GROUP, Label, NodeType
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.conditions import TRUE
from gpu_control_plane.kube.objects import Object, Resource, controller_of

OF_CLUSTERS: Final = Selection(labels=Label.CLUSTER.value)
"""Objects that carry the label of a RayCluster."""
MADE_HERE: Final = Selection(labels=f"{Label.CREATED_BY}={CREATED_BY}")
"""Objects that say that this operator, or KubeRay's, has made them."""

_ENDED: Final = frozenset({"Succeeded", "Failed"})


def is_owned(item: Object, owner: Object) -> bool:
    """Whether `owner` made the object."""
    held = controller_of(item)
    return held is not None and held.uid == owner.metadata.uid and item.metadata.namespace == owner.metadata.namespace


class _View(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    pass


class ContainerResources(_View, frozen=True, kw_only=True):
    limits: dict[str, int | str] = {}
    requests: dict[str, int | str] = {}


class PodContainer(_View, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    resources: ContainerResources = ContainerResources()
    restart_policy: str = ""
    """Of an init container: Always for one that runs beside the others."""


class SchedulingGate(_View, frozen=True, kw_only=True):
    name: str


class RayPodSpec(_View, frozen=True, kw_only=True):
    node_name: str = ""
    restart_policy: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()


class RayPodStatus(_View, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class RayPod(Object, frozen=True):
    """A pod of a RayCluster."""

    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    spec: RayPodSpec = RayPodSpec()
    status: RayPodStatus = RayPodStatus()

    @property
    def cluster(self) -> str:
        return self.metadata.labels.get(Label.CLUSTER, "")

    @property
    def group(self) -> str:
        return self.metadata.labels.get(Label.GROUP, "")

    @property
    def is_head(self) -> bool:
        return self.metadata.labels.get(Label.NODE_TYPE) == NodeType.HEAD and self.group in ("", HEAD_GROUP)

    @property
    def running(self) -> bool:
        return self.status.phase == "Running"

    @property
    def ended(self) -> bool:
        return self.status.phase in _ENDED

    @property
    def ready(self) -> bool:
        """Whether it runs and its condition Ready is true."""
        held = self.condition("Ready")
        return self.running and held is not None and held.status == TRUE

    def condition(self, kind: str) -> PodCondition | None:
        return next((held for held in self.status.conditions if held.type == kind), None)


class OwnedService(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Service", "services")
    spec: dict[str, Any] = {}


class OwnedIngress(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("networking.k8s.io", "v1", "Ingress", "ingresses")
    spec: dict[str, Any] = {}


class OwnedNetworkPolicy(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
    spec: dict[str, Any] = {}


class OwnedServiceAccount(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ServiceAccount", "serviceaccounts")


class OwnedRole(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles")
    rules: list[dict[str, Any]] = []


class OwnedRoleBinding(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
    role_ref: dict[str, Any] = {}
    subjects: list[dict[str, Any]] = []


class OwnedSecret(Object, frozen=True):
    """Of a Secret, that it is there; its content is of no concern."""

    resource: ClassVar[Resource] = Resource("", "v1", "Secret", "secrets")


class OwnedClaim(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    spec: dict[str, Any] = {}


class JobCondition(_View, frozen=True, kw_only=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class JobStatus(_View, frozen=True, kw_only=True):
    conditions: tuple[JobCondition, ...] = ()
    failed: int = 0


class OwnedJob(Object, frozen=True):
    """A Job of Kubernetes: it submits a job to Ray, or cleans up Redis."""

    resource: ClassVar[Resource] = Resource("batch", "v1", "Job", "jobs")
    status: JobStatus = JobStatus()

    def condition(self, kind: str) -> JobCondition | None:
        return next((held for held in self.status.conditions if held.type == kind and held.status == TRUE), None)

    @property
    def succeeded(self) -> bool:
        return self.condition("Complete") is not None

    @property
    def failed(self) -> bool:
        return self.condition("Failed") is not None
