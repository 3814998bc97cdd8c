"""KAI: it groups the pods of a RayCluster by itself, and is told only of the queue."""

from collections.abc import Mapping
from typing import ClassVar, Final, override

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.job import RayJob, SubmissionMode
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.ray.scheduling.surface import BatchSchedule, Manifest, Owner, PodSchedulingFields, Refusal

_NAME: Final = "kai-scheduler"
_QUEUE: Final = "kai.scheduler/queue"


class Kai(BatchSchedule):
    """Labels pods with its name and queue."""

    kinds: ClassVar[tuple[type[Object], ...]] = ()

    @override
    def refusal(self, owner: Owner) -> Refusal | None:
        if isinstance(owner, RayJob) and owner.spec.submission_mode is SubmissionMode.K8S_JOB:
            return Refusal(
                "SchedulerUnsupported",
                "KAI groups the pods of a RayJob before its submitter exists, so K8sJobMode cannot be scheduled: "
                "use submissionMode HTTPMode, SidecarMode or InteractiveMode",
            )
        return None

    @override
    def pod_scheduling_fields(self, owner: Owner, cluster: RayCluster, group: str) -> PodSchedulingFields:
        queue = owner.metadata.labels.get(_QUEUE) or cluster.metadata.labels.get(_QUEUE)
        return PodSchedulingFields(scheduler_name=_NAME, labels={_QUEUE: queue} if queue else {})

    @override
    def cluster_annotations(self, owner: RayJob) -> Mapping[str, str]:
        return {}

    @override
    def objects(self, owner: Owner, cluster: RayCluster | None) -> list[Manifest]:
        return []
