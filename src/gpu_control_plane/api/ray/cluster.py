"""RayCluster, `ray.io/v1`: a head and groups of workers."""

from datetime import datetime
from typing import Annotated, ClassVar, Final

import msgspec

from gpu_control_plane.api.ray.fields import (
    EnvVar,
    ManagedBy,
    PodPart,
    PodTemplate,
    Quantity,
    RayPart,
    ResourceNeeds,
    VolumeMount,
    WholeService,
    Words,
)
from gpu_control_plane.api.ray.names import GROUP, OLDER_VERSION, VERSION
from gpu_control_plane.kube.crd import AGE, Column, Definition, OlderVersion
from gpu_control_plane.kube.fields import OpenEnum, Rule, about
from gpu_control_plane.kube.objects import Condition, Object, Resource

UNLIMITED: Final = 2**31 - 1
_Count = Annotated[int, about(maximum=UNLIMITED)]
_Quantity = Annotated[int | str, about(**{"x-kubernetes-int-or-string": True})]


class UpgradeType(OpenEnum):
    """What happens to running pods when the spec changes."""

    NONE = "None", "they stay as they are; pods that are made later follow the spec."
    RECREATE = "Recreate", "all of them are deleted at once and made anew."
    ROLLING = "RollingUpdate", "workers are replaced one after the other, the head last and only if it has changed."


class UpgradeStrategy(RayPart, frozen=True, kw_only=True):
    """How a change of the spec reaches running pods."""

    type: Annotated[UpgradeType | None, about("None if absent.")] = None
    max_unavailable: Annotated[
        int | None,
        about("With RollingUpdate, workers of a group that are replaced at once; 1 if absent.", minimum=1),
    ] = None


class AuthMode(OpenEnum):
    """Whether callers of Ray have to show a token."""

    DISABLED = "disabled", "nobody is asked."
    TOKEN = "token", "everybody is; Ray 2.52.0 or later."


class AuthOptions(RayPart, frozen=True, kw_only=True):
    """Authentication between the nodes of Ray and their callers."""

    mode: Annotated[AuthMode | None, about("If absent a Secret is made, and nobody is asked.")] = None
    secret_name: Annotated[str, about("Secret with the token under the key auth_token; one is made if absent.")] = ""
    enable_k8s_token_auth: Annotated[
        bool, about("Tokens are those of service accounts, which the API server reviews; Ray 2.55.0 or later.")
    ] = msgspec.field(name="enableK8sTokenAuth", default=False)


class AutoscalerVersion(OpenEnum):
    """Which autoscaler Ray runs."""

    V1 = "v1", "the older one."
    V2 = "v2", "the newer one, which Ray takes by itself since 2.47."


class AutoscalerOptions(RayPart, frozen=True, kw_only=True):
    """The autoscaler, a container beside the head's."""

    resources: Annotated[ResourceNeeds | None, about("500m CPU and 512Mi memory if absent.")] = None
    image: Annotated[str, about("The head's if absent.")] = ""
    image_pull_policy: Annotated[str, about("IfNotPresent if absent.")] = ""
    security_context: Annotated[PodPart | None, about("Security context of the container.")] = None
    env: Annotated[tuple[EnvVar, ...], about("Environment, beside ours.")] = ()
    env_from: Annotated[tuple[PodPart, ...], about("Sources of environment.")] = ()
    volume_mounts: Annotated[tuple[VolumeMount, ...], about("Mounts, beside ours.")] = ()
    command: Annotated[tuple[str, ...], about("Command in place of ours.")] = ()
    args: Annotated[tuple[str, ...], about("Arguments in place of ours.")] = ()
    version: Annotated[AutoscalerVersion | None, about("Ray chooses if absent.")] = None
    idle_timeout_seconds: Annotated[int | None, about("Idle seconds before a worker goes; 60 if absent.")] = None
    upscaling_mode: Annotated[
        str,
        about(
            "How fast it adds workers; Default if absent, which is Aggressive. Conservative adds at most as many as "
            "run. Read by Ray.",
            enum=["Default", "Aggressive", "Conservative"],
        ),
    ] = ""


class Credential(RayPart, frozen=True, kw_only=True):
    """A user name or password: in clear, or from a Secret."""

    value: Annotated[str, about("In clear.")] = ""
    value_from: Annotated[PodPart | None, about("Where it comes from, as in a container's environment.")] = None


class GcsStorage(RayPart, frozen=True, kw_only=True):
    """The volume of the backend rocksdb."""

    claim_name: Annotated[str, about("PersistentVolumeClaim that is there; one is made if absent.")] = ""
    size: Annotated[Quantity | None, about("Size of the claim; 1Gi if absent.")] = None
    storage_class_name: Annotated[str, about("The cluster's own if absent.")] = ""
    access_modes: Annotated[tuple[str, ...], about("ReadWriteOnce if absent.")] = ()
    sub_path: Annotated[str, about("Folder in the volume.")] = ""
    deletion_policy: Annotated[
        str,
        about(
            "Whether the claim that was made goes with the cluster, as it does if absent, or stays.",
            enum=["DeleteWithCluster", "Retain"],
        ),
    ] = ""


class GcsFaultTolerance(RayPart, frozen=True, kw_only=True):
    """How the head's state survives the head."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(has(self.backend) ? self.backend : 'redis') == (has(oldSelf.backend) ? oldSelf.backend : 'redis')",
            "The backend cannot be changed: the state is in the one that the cluster began with.",
            field_path=".backend",
        ),
    )

    backend: Annotated[
        str, about("Where the state is kept; redis if absent. It cannot be changed.", enum=["redis", "rocksdb"])
    ] = ""
    redis_address: Annotated[str, about("Address of Redis.")] = ""
    redis_username: Annotated[Credential | None, about("User name for it.")] = None
    redis_password: Annotated[Credential | None, about("Password for it.")] = None
    external_storage_namespace: Annotated[str, about("Prefix of the keys; the cluster's UID if absent.")] = ""
    storage: Annotated[GcsStorage | None, about("With rocksdb, where it is kept.")] = None


class NetworkRules(RayPart, frozen=True, kw_only=True):
    """What pods may be reached from and reach beyond their cluster, as in a NetworkPolicy."""

    ingress_rules: Annotated[tuple[PodPart, ...], about("Rules for who may call them.")] = ()
    egress_rules: Annotated[tuple[PodPart, ...], about("Rules for whom they may call.")] = ()


class GroupNetworkRules(NetworkRules, frozen=True, kw_only=True):
    """The same for one worker group."""

    group_name: Annotated[str, about("Name of the group.")]


class RayNetworkPolicy(RayPart, frozen=True, kw_only=True):
    """NetworkPolicies of the cluster's pods. Pods of one cluster always reach each other."""

    mode: Annotated[
        str,
        about(
            "Which traffic is refused unless a rule allows it; both ways if absent.",
            enum=["DenyAll", "DenyAllIngress", "DenyAllEgress"],
        ),
    ] = ""
    head: Annotated[NetworkRules | None, about("Rules for the head.")] = None
    worker: Annotated[NetworkRules | None, about("Rules for workers.")] = None
    worker_groups: Annotated[
        tuple[GroupNetworkRules, ...], about("Rules of single groups, in place of worker.", keys=("groupName",))
    ] = ()


class TlsOptions(RayPart, frozen=True, kw_only=True):
    """TLS between the nodes of Ray, by cert-manager."""

    enabled: Annotated[bool, about("Whether it is on.")] = False


class CollectorOptions(RayPart, frozen=True, kw_only=True):
    """The container that collects logs for Ray's history server."""

    image: Annotated[str, about("Its image.")] = ""
    image_pull_policy: Annotated[str, about("When it is pulled.")] = ""
    resources: Annotated[ResourceNeeds | None, about("Its resources.")] = None
    env: Annotated[tuple[EnvVar, ...], about("Its environment; STORAGE_BACKEND is needed.")] = ()


class HistoryServerOptions(RayPart, frozen=True, kw_only=True):
    """What is kept for Ray's history server."""

    collector_options: Annotated[CollectorOptions | None, about("The container that collects it.")] = None


class IngressOptions(RayPart, frozen=True, kw_only=True):
    """The Ingress of the dashboard."""

    host: Annotated[str, about("Host name.")] = ""
    path: Annotated[str, about("Path; / if absent.")] = ""
    path_type: Annotated[
        str,
        about("How the path is compared; Prefix if absent.", enum=["Exact", "Prefix", "ImplementationSpecific"]),
    ] = ""
    tls: Annotated[tuple[PodPart, ...], about("TLS, as in an Ingress.")] = ()


class GroupSpec(RayPart, frozen=True, kw_only=True):
    """What head and workers have in common."""

    template: PodTemplate
    ray_start_params: Annotated[Words, about("Parameters of `ray start`, without the dashes.")] = {}
    resources: Annotated[Words, about("Resources that Ray is told, in place of those of the container.")] = {}
    labels: Annotated[Words, about("Labels that Ray is told, and that pods carry.")] = {}


class HeadGroupSpec(GroupSpec, frozen=True, kw_only=True):
    """The head: it runs the GCS, the dashboard, and the autoscaler if there is one."""

    service_type: Annotated[str, about("Type of its Service; ClusterIP if absent.")] = ""
    head_service: Annotated[WholeService | None, about("A whole Service that its Service is made from.")] = None
    enable_ingress: Annotated[bool, about("Whether an Ingress is made for the dashboard.")] = False
    ingress_options: Annotated[IngressOptions | None, about("What that Ingress is like.")] = None


class ScaleStrategy(RayPart, frozen=True, kw_only=True):
    """Which workers go first."""

    workers_to_delete: Annotated[tuple[str, ...], about("Names of pods to delete. Ray's autoscaler writes them.")] = ()


class WorkerGroupSpec(GroupSpec, frozen=True, kw_only=True):
    """Workers of one kind."""

    group_name: Annotated[str, about("Name of the group, unique in its cluster.")]
    replicas: Annotated[_Count | None, about("How many there are; Ray's autoscaler writes it.", default=True)] = 0
    min_replicas: Annotated[_Count | None, about("The fewest.", default=True)] = 0
    max_replicas: Annotated[_Count | None, about("The most.", default=True)] = UNLIMITED
    num_of_hosts: Annotated[_Count, about("Pods that make up one replica.", default=True)] = 1
    priority: Annotated[int | None, about("With autoscaler v2, groups of a higher one are preferred.")] = None
    idle_timeout_seconds: Annotated[int | None, about("With autoscaler v2, idle seconds before a worker goes.")] = None
    suspend: Annotated[bool | None, about("Whether the group has no pods for now.")] = None
    scale_strategy: Annotated[ScaleStrategy | None, about("Which workers go first.")] = None


class RayClusterSpec(RayPart, frozen=True, kw_only=True):
    """A cluster of Ray."""

    head_group_spec: Annotated[HeadGroupSpec, about("The head.")]
    worker_group_specs: Annotated[tuple[WorkerGroupSpec, ...], about("Groups of workers.")] = ()
    ray_version: Annotated[str, about("Version of Ray in the images; probes and checks depend on it.")] = ""
    enable_in_tree_autoscaling: Annotated[bool | None, about("Whether Ray adds and removes workers by itself.")] = None
    autoscaler_options: Annotated[AutoscalerOptions | None, about("What its autoscaler is like.")] = None
    suspend: Annotated[bool | None, about("Whether it has no pods for now.")] = None
    managed_by: ManagedBy = ""
    head_service_annotations: Annotated[Words, about("Annotations of the head's Service.")] = {}
    upgrade_strategy: Annotated[UpgradeStrategy | None, about("How a change reaches running pods.")] = None
    auth_options: Annotated[AuthOptions | None, about("Authentication.")] = None
    gcs_fault_tolerance_options: Annotated[GcsFaultTolerance | None, about("How state survives the head.")] = None
    network_policy: Annotated[RayNetworkPolicy | None, about("NetworkPolicies of its pods.")] = None
    tls_options: Annotated[TlsOptions | None, about("TLS between its nodes.")] = None
    history_server_options: Annotated[HistoryServerOptions | None, about("What is kept for the history server.")] = None


class ClusterState(OpenEnum):
    """How a RayCluster stands, in one word."""

    READY = "ready", "all its pods have been up at once."
    SUSPENDED = "suspended", "it has no pods, as asked for."
    FAILED = "failed", "not used."


class ClusterCondition(OpenEnum):
    """Conditions of a RayCluster."""

    HEAD_POD_READY = "HeadPodReady", "The head's pod runs and is ready."
    PROVISIONED = "RayClusterProvisioned", "All its pods have been up for the first time since it began or was resumed."
    REPLICA_FAILURE = "ReplicaFailure", "A pod could not be made or deleted."
    SUSPENDING = "RayClusterSuspending", "Its pods are being deleted."
    SUSPENDED = "RayClusterSuspended", "It has no pods, as asked for."
    VALID = "Valid", "The spec can be carried out. Ours; KubeRay has only an Event."
    WORKERS_READY = "WorkersReady", "As many workers are ready as are asked for. Ours."
    CAPACITY = "CapacitySufficient", "Pools could serve every group, if all their cards were free. Ours."
    OTHER_OPERATOR_ACTIVE = "OtherOperatorActive", "This operator writes nothing while KubeRay's is active. Ours."


class HeadInfo(RayPart, frozen=True, kw_only=True):
    """The head's pod and Service."""

    pod_ip: Annotated[str, about("Address of the pod.")] = ""
    pod_name: Annotated[str, about("Name of the pod.")] = ""
    service_ip: Annotated[str, about("Address of the Service; the pod's if that is headless.")] = ""
    service_name: Annotated[str, about("Name of the Service.")] = ""


class RayClusterStatus(RayPart, frozen=True, kw_only=True):
    """How a RayCluster stands."""

    state: Annotated[ClusterState | None, about("In one word.", closed=False)] = None
    reason: Annotated[str, about("Why it does not go on.")] = ""
    desired_cpu: Annotated[_Quantity, about("CPUs of all its pods.")] = msgspec.field(name="desiredCPU", default="")
    desired_memory: Annotated[_Quantity, about("Memory of all its pods.")] = ""
    desired_gpu: Annotated[_Quantity, about("GPUs of all its pods.")] = msgspec.field(name="desiredGPU", default="")
    desired_tpu: Annotated[_Quantity, about("TPUs of all its pods.")] = msgspec.field(name="desiredTPU", default="")
    ready_worker_replicas: Annotated[int, about("Worker pods that are ready.")] = 0
    available_worker_replicas: Annotated[int, about("Worker pods that run.")] = 0
    desired_worker_replicas: Annotated[int, about("Worker pods that are asked for.")] = 0
    min_worker_replicas: Annotated[int, about("The fewest worker pods.")] = 0
    max_worker_replicas: Annotated[int, about("The most worker pods.")] = 0
    head: Annotated[HeadInfo | None, about("The head's pod and Service.")] = None
    endpoints: Annotated[Words, about("Ports of the head's Service by name: node ports, or target ports.")] = {}
    last_update_time: Annotated[datetime | None, about("When this status changed last.")] = None
    state_transition_times: Annotated[dict[str, datetime], about("When it came to each state.")] = {}
    observed_generation: Annotated[int, about("Generation of the spec that this answers.")] = 0
    conditions: Annotated[tuple[Condition, ...], about("Why it stands so.", keys=("type",))] = ()


class RayCluster(Object, frozen=True, kw_only=True):
    """A cluster of Ray: a head and groups of workers, whose GPUs may come from pools."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "RayCluster", "rayclusters")

    spec: Annotated[RayClusterSpec, about("What it is like.")]
    status: Annotated[RayClusterStatus, about("How it stands.")] = RayClusterStatus()


DEFINITION: Final = Definition(
    kind=RayCluster,
    categories=("all",),
    columns=(
        Column("desired workers", ".status.desiredWorkerReplicas", "integer"),
        Column("available workers", ".status.availableWorkerReplicas", "integer"),
        Column("cpus", ".status.desiredCPU"),
        Column("memory", ".status.desiredMemory"),
        Column("gpus", ".status.desiredGPU"),
        Column("tpus", ".status.desiredTPU", priority=1),
        Column("status", ".status.state"),
        Column("head pod IP", ".status.head.podIP", priority=1),
        Column("head service IP", ".status.head.serviceIP", priority=1),
        AGE,
    ),
    older=(OlderVersion(OLDER_VERSION, warning="ray.io/v1alpha1 RayCluster is deprecated: use ray.io/v1"),),
)
