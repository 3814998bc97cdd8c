"""RayCronJob, `ray.io/v1`: RayJobs by the clock."""

from datetime import datetime
from typing import Annotated, ClassVar, Final

from gpu_control_plane.api.ray.fields import RayPart
from gpu_control_plane.api.ray.job import RayJobSpec
from gpu_control_plane.api.ray.names import GROUP, VERSION
from gpu_control_plane.kube.crd import AGE, Column, Definition
from gpu_control_plane.kube.fields import OpenEnum, about
from gpu_control_plane.kube.objects import Condition, Object, Resource


class ConcurrencyPolicy(OpenEnum):
    """What happens when the time has come and the RayJob before still runs."""

    ALLOW = "Allow", "both run."
    FORBID = "Forbid", "this time waits until the one before has ended, if startingDeadlineSeconds allows that."
    REPLACE = "Replace", "the one before is deleted."


class RayCronJobSpec(RayPart, frozen=True, kw_only=True):
    """When which RayJob is made."""

    schedule: Annotated[str, about("Minute, hour, day, month and weekday, as in cron; or @hourly and the like.")]
    job_template: Annotated[RayJobSpec, about("The RayJob.")]
    time_zone: Annotated[str | None, about("Time zone of the schedule, such as Europe/Berlin; UTC if absent.")] = None
    suspend: Annotated[bool | None, about("Whether no RayJob is made for now.")] = None
    concurrency_policy: Annotated[
        ConcurrencyPolicy, about("What happens when the one before still runs. Ours.", default=True)
    ] = ConcurrencyPolicy.ALLOW
    starting_deadline_seconds: Annotated[
        int | None,
        about(
            "How late, in seconds, a RayJob may be made; any time if absent. Less than 10 might make none. Ours.",
            minimum=10,
        ),
    ] = None
    successful_jobs_history_limit: Annotated[
        int | None, about("How many RayJobs that succeeded are kept. Ours.", filled_in=3, minimum=0)
    ] = None
    failed_jobs_history_limit: Annotated[
        int | None, about("How many RayJobs that failed are kept. Ours.", filled_in=1, minimum=0)
    ] = None
    """Both are absent only under KubeRay's CRD, which does not know them: nothing is deleted then, as in KubeRay."""


class CronJobCondition(OpenEnum):
    """Conditions of a RayCronJob."""

    VALID = "Valid", "The schedule, the time zone and the RayJob can be carried out."


class RayCronJobStatus(RayPart, frozen=True, kw_only=True):
    """How a RayCronJob stands."""

    last_schedule_time: Annotated[datetime | None, about("The last time for which a RayJob was made.")] = None
    last_successful_time: Annotated[datetime | None, about("When a RayJob of it succeeded last. Ours.")] = None
    next_schedule_time: Annotated[datetime | None, about("The next time. Ours.")] = None
    active: Annotated[tuple[str, ...], about("Names of its RayJobs that have not ended. Ours.")] = ()
    observed_generation: Annotated[int, about("Generation of the spec that this answers.")] = 0
    conditions: Annotated[tuple[Condition, ...], about("Why it stands so.", keys=("type",))] = ()


class RayCronJob(Object, frozen=True, kw_only=True):
    """RayJobs by the clock."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "RayCronJob", "raycronjobs")

    spec: Annotated[RayCronJobSpec, about("When which RayJob is made.")]
    status: Annotated[RayCronJobStatus, about("How it stands.")] = RayCronJobStatus()


DEFINITION: Final = Definition(
    kind=RayCronJob,
    categories=("all",),
    columns=(
        Column("schedule", ".spec.schedule"),
        Column("suspend", ".spec.suspend", "boolean"),
        Column("last schedule", ".status.lastScheduleTime", "date"),
        Column("next schedule", ".status.nextScheduleTime", "string", priority=1),
        AGE,
    ),
)
