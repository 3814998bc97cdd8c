"""The coscheduling plugin of scheduler-plugins: a PodGroup for RayClusters that ask for gang scheduling."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, override

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.kube.objects import Object, Resource, controlled_by
from gpu_control_plane.ray.demand import desired_amounts, quantity_text, worker_pods
from gpu_control_plane.ray.scheduling.surface import BatchSchedule, Manifest, Owner, PodSchedulingFields, Refusal

_NAME: Final = "scheduler-plugins-scheduler"
_POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"


class CoschedulingPodGroup(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
    spec: dict[str, Any] = {}


class SchedulerPlugins(BatchSchedule):
    """Labels pods with the PodGroup of their cluster."""

    kinds: ClassVar[tuple[type[Object], ...]] = (CoschedulingPodGroup,)

    @override
    def refusal(self, owner: Owner) -> Refusal | None:
        """KubeRay leaves every RayJob waiting for ever; here only one that asks for gang scheduling is refused."""
        if isinstance(owner, RayJob) and Label.GANG.value in owner.metadata.labels:
            return Refusal(
                "SchedulerUnsupported",
                f"scheduler-plugins schedules RayClusters together, not RayJobs: remove the label {Label.GANG}, "
                "or put the job on a RayCluster that has it",
            )
        return None

    @override
    def pod_scheduling_fields(self, owner: Owner, cluster: RayCluster, group: str) -> PodSchedulingFields:
        gang = Label.GANG.value in cluster.metadata.labels
        return PodSchedulingFields(scheduler_name=_NAME, labels={_POD_GROUP: cluster.name} if gang else {})

    @override
    def cluster_annotations(self, owner: RayJob) -> Mapping[str, str]:
        return {}

    @override
    def objects(self, owner: Owner, cluster: RayCluster | None) -> list[Manifest]:
        if not isinstance(owner, RayCluster) or Label.GANG.value not in owner.metadata.labels:
            return []
        amounts = desired_amounts(owner.spec)
        reference = controlled_by(owner.resource, owner.name, owner.metadata.uid)
        return [
            {
                "apiVersion": CoschedulingPodGroup.resource.api_version,
                "kind": CoschedulingPodGroup.resource.kind,
                "metadata": {
                    "name": owner.name,
                    "namespace": owner.metadata.namespace,
                    "ownerReferences": [msgspec.to_builtins(reference)],
                },
                "spec": {
                    "minMember": 1 + worker_pods(owner.spec),
                    "minResources": {name: quantity_text(amount) for name, amount in sorted(amounts.items())},
                },
            }
        ]
