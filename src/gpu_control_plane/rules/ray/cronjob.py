"""What cannot be carried out of a RayCronJob."""

from typing import Final

from gpu_control_plane.api.ray.cronjob import RayCronJob
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.rules.ray.job import job_faults
from gpu_control_plane.rules.ray.problem import Facts, Faults, Problem, problems_of
from gpu_control_plane.rules.ray.schedule import BadSchedule, Schedule, zone_of
from gpu_control_plane.rules.ray.texts import name_faults

NAME_LIMIT: Final = 36


def cronjob_problems(cron: RayCronJob, facts: Facts = Facts()) -> tuple[Problem, ...]:  # noqa: B008 - it is frozen
    """Everything that is wrong with it and with the RayJobs that it makes; empty if it can be carried out."""
    return problems_of(cron, _faults(cron, facts))


def _faults(cron: RayCronJob, facts: Facts) -> Faults:
    spec = cron.spec
    yield from name_faults(cron.name, NAME_LIMIT, dns=False)
    try:
        schedule = Schedule.parse(spec.schedule)
    except BadSchedule as error:
        yield "spec.schedule", str(error)
    else:
        if schedule.zone is not None and spec.time_zone:
            yield "spec.schedule", "it names a time zone, and timeZone does so, too: keep timeZone"
    if spec.time_zone and zone_of(spec.time_zone) is None:
        yield "spec.timeZone", f"{spec.time_zone} is no time zone that is known here: write one such as Europe/Berlin"
    made = RayJob(metadata=ObjectMeta(name="", annotations=cron.metadata.annotations), spec=spec.job_template)
    yield from job_faults(made, "spec.jobTemplate", facts)
