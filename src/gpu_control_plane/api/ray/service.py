"""RayService, `ray.io/v1`: applications of Ray Serve behind a Service that stays, whatever cluster they run on."""

from datetime import datetime
from typing import Annotated, ClassVar, Final

from gpu_control_plane.api.ray.cluster import UNLIMITED, RayClusterSpec, RayClusterStatus
from gpu_control_plane.api.ray.fields import ManagedBy, RayPart, WholeService
from gpu_control_plane.api.ray.names import GROUP, OLDER_VERSION, VERSION
from gpu_control_plane.kube.crd import AGE, Column, Definition, OlderVersion
from gpu_control_plane.kube.fields import OpenEnum, about
from gpu_control_plane.kube.objects import Condition, Object, Resource


class ServiceUpgradeType(OpenEnum):
    """How a change of the cluster's spec is carried out."""

    NEW_CLUSTER = "NewCluster", "a second cluster comes up, and takes over at once."
    INCREMENTAL = "NewClusterWithIncrementalUpgrade", "a second cluster takes over in steps, by the Gateway API."
    NONE = "None", "it is not."


class ClusterUpgradeOptions(RayPart, frozen=True, kw_only=True):
    """The steps of an incremental upgrade."""

    max_surge_percent: Annotated[int | None, about("Capacity beyond 100 % at once; 100 if absent.", default=True)] = 100
    step_size_percent: Annotated[int | None, about("Traffic that moves in one step.", required=True)] = None
    interval_seconds: Annotated[int | None, about("Seconds between two steps.", required=True, maximum=UNLIMITED)] = (
        None
    )
    gateway_class_name: Annotated[str, about("GatewayClass of the Gateway.", required=True)] = ""


class ServiceUpgradeStrategy(RayPart, frozen=True, kw_only=True):
    """How a change of the cluster's spec is carried out."""

    type: Annotated[ServiceUpgradeType | None, about("NewCluster if absent.", closed=False)] = None
    cluster_upgrade_options: Annotated[ClusterUpgradeOptions | None, about("Steps of an incremental one.")] = None


class RayServiceSpec(RayPart, frozen=True, kw_only=True):
    """Applications of Ray Serve, and the cluster they run on."""

    ray_cluster_config: Annotated[RayClusterSpec, about("The cluster.")]
    serve_config_v2: Annotated[str, about("Configuration of Ray Serve, as YAML.")] = ""
    serve_service: Annotated[WholeService | None, about("A whole Service that the one of Serve is made from.")] = None
    exclude_head_pod_from_serve_svc: Annotated[bool, about("Whether requests stay away from the head.")] = False
    suspend: Annotated[bool, about("Whether it has no cluster for now.")] = False
    ray_cluster_deletion_delay_seconds: Annotated[
        int | None,
        about(
            "Seconds until a cluster goes that another has taken over from; 60 if absent.", minimum=0, maximum=UNLIMITED
        ),
    ] = None
    upgrade_strategy: Annotated[ServiceUpgradeStrategy | None, about("How a change is carried out.")] = None
    managed_by: ManagedBy = ""
    service_unhealthy_second_threshold: Annotated[int | None, about("Seconds.", effect=False)] = None
    deployment_unhealthy_second_threshold: Annotated[int | None, about("Seconds.", effect=False)] = None


class DeploymentStatus(RayPart, frozen=True, kw_only=True):
    """One deployment of an application."""

    status: Annotated[str, about("HEALTHY, UPDATING, …: as Serve says it.")] = ""
    message: Annotated[str, about("Why.")] = ""


class ApplicationStatus(RayPart, frozen=True, kw_only=True):
    """One application of Ray Serve."""

    status: Annotated[str, about("RUNNING, DEPLOYING, …: as Serve says it.")] = ""
    message: Annotated[str, about("Why.")] = ""
    serve_deployment_statuses: Annotated[dict[str, DeploymentStatus], about("Its deployments.")] = {}


class ServedCluster(RayPart, frozen=True, kw_only=True):
    """A cluster of a RayService."""

    ray_cluster_name: Annotated[str, about("Its name.")] = ""
    ray_cluster_status: Annotated[RayClusterStatus | None, about("How it stands.")] = None
    application_statuses: Annotated[dict[str, ApplicationStatus], about("Its applications.")] = {}
    target_capacity: Annotated[int | None, about("Percent of its replicas that are asked for.")] = None
    traffic_routed_percent: Annotated[int | None, about("Percent of requests that go to it.")] = None
    last_traffic_migrated_time: Annotated[datetime | None, about("When that changed last.")] = None


class ServiceCondition(OpenEnum):
    """Conditions of a RayService."""

    READY = "Ready", "Requests are answered."
    UPGRADE_IN_PROGRESS = "UpgradeInProgress", "A second cluster is coming up."
    ROLLBACK_IN_PROGRESS = "RollbackInProgress", "Traffic goes back to the cluster that was there before."
    SUSPENDING = "Suspending", "Its clusters are being deleted."
    SUSPENDED = "Suspended", "It has no cluster, as asked for."
    UP_TO_DATE = "ClusterUpToDate", "The cluster that answers is as the spec says. Ours."
    OTHER_OPERATOR_ACTIVE = "OtherOperatorActive", "This operator writes nothing while KubeRay's is active. Ours."


class RayServiceStatus(RayPart, frozen=True, kw_only=True):
    """How a RayService stands."""

    service_status: Annotated[str, about("Running, or empty.")] = ""
    num_serve_endpoints: Annotated[int, about("Pods that answer requests.")] = 0
    active_service_status: Annotated[ServedCluster | None, about("The cluster that answers.")] = None
    pending_service_status: Annotated[ServedCluster | None, about("The cluster that is to take over.")] = None
    last_update_time: Annotated[datetime | None, about("When this status changed last.")] = None
    observed_generation: Annotated[int, about("Generation of the spec that this answers.")] = 0
    conditions: Annotated[tuple[Condition, ...], about("Why it stands so.", keys=("type",))] = ()


class RayService(Object, frozen=True, kw_only=True):
    """Applications of Ray Serve behind a Service that stays, whatever cluster they run on."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "RayService", "rayservices")

    spec: Annotated[RayServiceSpec, about("What is served, and by which cluster.")]
    status: Annotated[RayServiceStatus, about("How it stands.")] = RayServiceStatus()


DEFINITION: Final = Definition(
    kind=RayService,
    categories=("all",),
    columns=(
        Column("service status", ".status.serviceStatus"),
        Column("num serve endpoints", ".status.numServeEndpoints"),
        AGE,
    ),
    older=(OlderVersion(OLDER_VERSION, warning="ray.io/v1alpha1 RayService is deprecated: use ray.io/v1"),),
)
