"""Which scheduler a name of the configuration stands for."""

from collections.abc import Mapping
from typing import Final

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import HEAD_GROUP
from gpu_control_plane.ray.options import BatchScheduler
from gpu_control_plane.ray.scheduling.kai import Kai
from gpu_control_plane.ray.scheduling.scheduler_plugins import SchedulerPlugins
from gpu_control_plane.ray.scheduling.surface import BatchSchedule, Owner, PodSchedulingFields
from gpu_control_plane.ray.scheduling.volcano import Volcano
from gpu_control_plane.ray.scheduling.yunikorn import YuniKorn

_SCHEDULERS: Final[Mapping[BatchScheduler, BatchSchedule]] = {
    BatchScheduler.VOLCANO: Volcano(),
    BatchScheduler.YUNIKORN: YuniKorn(),
    BatchScheduler.SCHEDULER_PLUGINS: SchedulerPlugins(),
    BatchScheduler.KAI: Kai(),
}


def scheduler_for(name: BatchScheduler) -> BatchSchedule | None:
    """The scheduler of this name; None for Kubernetes' own."""
    return _SCHEDULERS.get(name)


def scheduling_fields_of(
    scheduler: BatchSchedule | None, owner: Owner, cluster: RayCluster
) -> dict[str, PodSchedulingFields]:
    """What the pods of each group carry, the head's under `HEAD_GROUP`."""
    if scheduler is None:
        return {}
    groups = (HEAD_GROUP, *(group.group_name for group in cluster.spec.worker_group_specs))
    return {group: scheduler.pod_scheduling_fields(owner, cluster, group) for group in groups}
