"""RayCronJobs as a controller: it makes the RayJob that is due, and deletes those that are more than are kept."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from gpu_control_plane.api.ray.cronjob import RayCronJob
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.errors import KubeError, NotFound
from gpu_control_plane.kube.objects import LAST_APPLIED, Key, Object, controlled_by, controller_of
from gpu_control_plane.ray.cluster.caches import BY_OWNER, by_owner
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.cronjob.decide import CronSnapshot, decide, job_name
from gpu_control_plane.ray.cronjob.events import CronJobEvent
from gpu_control_plane.ray.event_record import emit
from gpu_control_plane.ray.names import label_value
from gpu_control_plane.ray.owned import is_owned
from gpu_control_plane.ray.status_patch import write_status
from gpu_control_plane.rules.ray.cronjob import cronjob_problems


def build(components: RayComponents) -> None:
    """Add the controller of RayCronJobs to a process."""
    runtime = components.runtime
    crons, jobs = components.caches(RayCronJob), components.caches(RayJob)
    jobs.index(BY_OWNER, by_owner)

    async def reconcile(key: Key) -> Requeue | None:
        cron = crons.at(key)
        if cron is None or cron.deleting or components.lease.active() is not None:
            return None
        made = tuple(job for job in jobs.by_index(BY_OWNER, cron.metadata.uid) if is_owned(job, cron))
        problems = tuple(str(problem) for problem in cronjob_problems(cron))
        decision = decide(CronSnapshot(cron=cron, jobs=made, problems=problems, now=components.now()))
        for job in decision.delete:
            await delete(job)
        if decision.due is not None:
            await make(cron, decision.due)
        cron = await write_status(runtime.client, cron, decision.status)
        for event in decision.events:
            emit(runtime.events, cron, event)
        return Requeue(after=decision.again_in.total_seconds()) if decision.again_in is not None else None

    async def make(cron: RayCronJob, due: datetime) -> None:
        name = job_name(cron, due)
        try:
            _, new = await components.writer.create_once(RayJob, cron, ray_job(cron, due))
        except KubeError as error:
            runtime.events.warning(cron, CronJobEvent.FAILED_CREATE, f"RayJob {name}: {error}", action="Create")
            raise
        if new:
            runtime.events.normal(cron, CronJobEvent.CREATED, f"RayJob {name} was made", action="Create")

    async def delete(job: RayJob) -> None:
        try:
            await runtime.client.delete(RayJob, job.name, job.metadata.namespace, uid=job.metadata.uid)
        except NotFound:
            return

    controller = runtime.controller("raycronjob", reconcile)
    crons.watch(controller)
    jobs.watch(controller, _owning_cron)
    controller.watch(components.lease.changed, lambda _fired: [cron.key for cron in crons])


def ray_job(cron: RayCronJob, due: datetime) -> dict[str, Any]:
    """The RayJob of a time, with the labels and annotations of the RayCronJob."""
    metadata = cron.metadata
    annotations = {key: value for key, value in metadata.annotations.items() if key != LAST_APPLIED}
    owner = controlled_by(cron.resource, cron.name, metadata.uid)
    return {
        "apiVersion": RayJob.resource.api_version,
        "kind": RayJob.resource.kind,
        "metadata": {
            "name": job_name(cron, due),
            "namespace": metadata.namespace,
            "labels": {
                **metadata.labels,
                Label.ORIGINATED_FROM_NAME.value: label_value(cron.name),
                Label.ORIGINATED_FROM_KIND.value: RayCronJob.resource.kind,
            },
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [msgspec.to_builtins(owner)],
        },
        "spec": msgspec.to_builtins(cron.spec.job_template),
    }


def _owning_cron(item: Object) -> Iterable[Key]:
    owner = controller_of(item)
    of_cron = owner is not None and (owner.api_version, owner.kind) == (
        RayCronJob.resource.api_version,
        RayCronJob.resource.kind,
    )
    return (Key(owner.name, item.metadata.namespace),) if owner is not None and of_cron else ()
