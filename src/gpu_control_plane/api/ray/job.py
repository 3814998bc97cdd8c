"""RayJob, `ray.io/v1`: a job of Ray, on a cluster of its own or on one that is there."""

from datetime import datetime
from typing import Annotated, ClassVar, Final

from gpu_control_plane.api.ray.cluster import UNLIMITED, RayClusterSpec, RayClusterStatus
from gpu_control_plane.api.ray.fields import ManagedBy, PodTemplate, RayPart, Words
from gpu_control_plane.api.ray.names import GROUP, OLDER_VERSION, VERSION
from gpu_control_plane.kube.crd import AGE, Column, Definition, OlderVersion
from gpu_control_plane.kube.fields import OpenEnum, Rule, about
from gpu_control_plane.kube.objects import Object, Resource

_Bounded = Annotated[int, about(maximum=UNLIMITED)]
"""A number of 32 bits, as KubeRay has it: a time of so many seconds is still one that there is."""


class SubmissionMode(OpenEnum):
    """How a job reaches Ray."""

    K8S_JOB = "K8sJobMode", "a Job of Kubernetes submits it and follows its log."
    HTTP = "HTTPMode", "the operator submits it over the dashboard."
    INTERACTIVE = "InteractiveMode", "a person submits it, and writes its ID into spec.jobId."
    SIDECAR = "SidecarMode", "a container beside the head's submits it."


class DeletionPolicy(OpenEnum):
    """What goes when a job has ended."""

    CLUSTER = "DeleteCluster", "its RayCluster."
    WORKERS = "DeleteWorkers", "the workers of its RayCluster."
    SELF = "DeleteSelf", "the RayJob, and all that it made."
    NONE = "DeleteNone", "nothing."


class DeletionCondition(RayPart, frozen=True, kw_only=True):
    """When a rule holds: one of the two states, and how long after the end."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.jobStatus) != has(self.jobDeploymentStatus)",
            "A condition has either jobStatus or jobDeploymentStatus: name one of the two.",
        ),
    )

    job_status: Annotated[str | None, about("How the job ended, as Ray says it.", enum=["SUCCEEDED", "FAILED"])] = None
    job_deployment_status: Annotated[str | None, about("How the RayJob ended, whatever Ray says.", enum=["Failed"])] = (
        None
    )
    ttl_seconds: Annotated[_Bounded, about("Seconds after the end.", default=True, minimum=0)] = 0


class DeletionRule(RayPart, frozen=True, kw_only=True):
    """What goes, and when."""

    policy: Annotated[DeletionPolicy, about("What goes.")]
    condition: Annotated[DeletionCondition, about("When.")]


class LegacyDeletion(RayPart, frozen=True, kw_only=True):
    """The older form of a rule."""

    policy: Annotated[DeletionPolicy | None, about("What goes.")] = None


class DeletionStrategy(RayPart, frozen=True, kw_only=True):
    """What goes when the job has ended: rules, or the older pair."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.deletionRules) && (has(self.onSuccess) || has(self.onFailure)))",
            "deletionRules and the deprecated onSuccess and onFailure exclude each other: keep deletionRules.",
        ),
        Rule(
            "has(self.deletionRules) || (has(self.onSuccess) && has(self.onFailure))",
            "A deletionStrategy needs deletionRules (or the deprecated pair onSuccess and onFailure, both).",
        ),
    )

    deletion_rules: Annotated[tuple[DeletionRule, ...] | None, about("Each with its own time.", minItems=1)] = None
    on_success: Annotated[LegacyDeletion | None, about("Deprecated: use deletionRules.")] = None
    on_failure: Annotated[LegacyDeletion | None, about("Deprecated: use deletionRules.")] = None


class SubmitterConfig(RayPart, frozen=True, kw_only=True):
    """The Job of Kubernetes that submits the job."""

    backoff_limit: Annotated[_Bounded | None, about("How often its pod is tried again; 2 if absent.")] = None


class RayJobSpec(RayPart, frozen=True, kw_only=True):
    """A job of Ray."""

    entrypoint: Annotated[str, about("The command.")] = ""
    runtime_env_yaml: Annotated[str, about("Ray's runtime environment, as YAML.")] = ""
    job_id: Annotated[str, about("ID of the job in Ray; chosen if absent.")] = ""
    metadata: Annotated[Words, about("Metadata that Ray keeps with the job.")] = {}
    submission_mode: Annotated[SubmissionMode, about("How the job reaches Ray.", default=True, closed=False)] = (
        SubmissionMode.K8S_JOB
    )
    ray_cluster_spec: Annotated[RayClusterSpec | None, about("The cluster that is made for it.")] = None
    cluster_selector: Annotated[Words, about("Labels of the cluster it runs on: ray.io/cluster, with its name.")] = {}
    submitter_pod_template: Annotated[PodTemplate | None, about("Pod of the Job that submits it.")] = None
    submitter_config: Annotated[SubmitterConfig | None, about("That Job.")] = None
    entrypoint_num_cpus: Annotated[float, about("CPUs set aside for the command.")] = 0.0
    entrypoint_num_gpus: Annotated[float, about("GPUs set aside for the command.")] = 0.0
    entrypoint_resources: Annotated[str, about("Other resources set aside for it, as JSON.")] = ""
    active_deadline_seconds: Annotated[_Bounded | None, about("How long a try may take.")] = None
    pre_running_deadline_seconds: Annotated[
        _Bounded | None, about("How long it may take until the job runs.", minimum=1)
    ] = None
    backoff_limit: Annotated[
        _Bounded | None, about("How often it is tried again, with a new cluster.", default=True)
    ] = 0
    shutdown_after_job_finishes: Annotated[bool, about("Whether the cluster goes when the job has ended.")] = False
    ttl_seconds_after_finished: Annotated[_Bounded, about("Seconds until then.", default=True)] = 0
    suspend: Annotated[bool, about("Whether it waits, without a cluster.")] = False
    managed_by: ManagedBy = ""
    deletion_strategy: Annotated[DeletionStrategy | None, about("What goes when the job has ended.")] = None


class JobStatus(OpenEnum):
    """What Ray says of a job."""

    NEW = "", "Ray does not know it yet."
    PENDING = "PENDING", "it waits."
    RUNNING = "RUNNING", "it runs."
    STOPPED = "STOPPED", "somebody stopped it."
    SUCCEEDED = "SUCCEEDED", "it has ended well."
    FAILED = "FAILED", "it has failed."

    @property
    def terminal(self) -> bool:
        return self in {JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED}


class JobDeploymentStatus(OpenEnum):
    """Where a RayJob stands."""

    NEW = "", "nothing has been done."
    INITIALIZING = "Initializing", "its cluster comes up."
    WAITING = "Waiting", "a person is to submit it."
    RUNNING = "Running", "it has been submitted."
    COMPLETE = "Complete", "it has ended."
    FAILED = "Failed", "it has failed; the reason says how."
    SUSPENDING = "Suspending", "its cluster is being deleted."
    SUSPENDED = "Suspended", "it waits, without a cluster."
    RETRYING = "Retrying", "its cluster is being deleted, and it will be tried again."
    VALIDATION_FAILED = "ValidationFailed", "its spec cannot be carried out."


class JobFailedReason(OpenEnum):
    """Why a RayJob has failed, or does not go on."""

    SUBMISSION_FAILED = "SubmissionFailed", "it could not be submitted."
    APP_FAILED = "AppFailed", "the command failed."
    DEADLINE_EXCEEDED = "DeadlineExceeded", "it took longer than activeDeadlineSeconds."
    PRE_RUNNING_DEADLINE_EXCEEDED = "PreRunningDeadlineExceeded", "it did not run in preRunningDeadlineSeconds."
    GRACE_PERIOD_EXCEEDED = (
        "JobDeploymentStatusTransitionGracePeriodExceeded",
        "Ray and the submitter did not agree for too long.",
    )
    STATUS_CHECK_TIMEOUT = "JobStatusCheckTimeoutExceeded", "Ray's dashboard did not answer for too long."
    VALIDATION_FAILED = "ValidationFailed", "the spec cannot be carried out."
    LOST = "JobLost", "Ray no longer knows it, and a person is to submit it again. Ours."


class RayJobInfo(RayPart, frozen=True, kw_only=True):
    """What Ray says of the job's times."""

    start_time: Annotated[datetime | None, about("When it began.")] = None
    end_time: Annotated[datetime | None, about("When it ended.")] = None


class RayJobStatus(RayPart, frozen=True, kw_only=True):
    """How a RayJob stands."""

    job_id: Annotated[str, about("ID of the job in Ray.")] = ""
    ray_cluster_name: Annotated[str, about("Its cluster.")] = ""
    dashboard_url: Annotated[str, about("Where Ray's dashboard is.")] = ""
    job_status: Annotated[JobStatus, about("What Ray says of the job.", closed=False)] = JobStatus.NEW
    job_deployment_status: Annotated[JobDeploymentStatus, about("Where it stands.", closed=False)] = (
        JobDeploymentStatus.NEW
    )
    reason: Annotated[str, about("Why it has failed, or does not go on.")] = ""
    message: Annotated[str, about("The same in a sentence.")] = ""
    start_time: Annotated[datetime | None, about("When this try began.")] = None
    end_time: Annotated[datetime | None, about("When it ended.")] = None
    succeeded: Annotated[int, about("Tries that succeeded.")] = 0
    failed: Annotated[int, about("Tries that failed.")] = 0
    ray_job_info: Annotated[RayJobInfo | None, about("What Ray says of the job's times.")] = None
    ray_cluster_status: Annotated[RayClusterStatus | None, about("How its cluster stands.")] = None
    job_status_check_failure_start_time: Annotated[
        datetime | None, about("Since when the dashboard has not answered, or Ray has lost the job.")
    ] = None
    observed_generation: Annotated[int, about("Generation of the spec that this answers.")] = 0


class RayJob(Object, frozen=True, kw_only=True):
    """A job of Ray, on a cluster of its own or on one that is there."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "RayJob", "rayjobs")

    spec: Annotated[RayJobSpec, about("What is to run.")]
    status: Annotated[RayJobStatus, about("How it stands.")] = RayJobStatus()


DEFINITION: Final = Definition(
    kind=RayJob,
    categories=("all",),
    columns=(
        Column("job status", ".status.jobStatus"),
        Column("deployment status", ".status.jobDeploymentStatus"),
        Column("ray cluster name", ".status.rayClusterName"),
        Column("start time", ".status.startTime"),
        Column("end time", ".status.endTime"),
        AGE,
    ),
    older=(OlderVersion(OLDER_VERSION, warning="ray.io/v1alpha1 RayJob is deprecated: use ray.io/v1"),),
)
