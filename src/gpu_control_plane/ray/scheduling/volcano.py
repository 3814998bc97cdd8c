"""Volcano: one PodGroup for a RayCluster or RayJob, kept as large as what is asked for."""

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final, override

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster, RayClusterSpec
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.kube.objects import LAST_APPLIED, Object, Resource, controlled_by
from gpu_control_plane.ray.demand import (
    Amounts,
    desired_amounts,
    least_amounts,
    least_group_pods,
    quantity_text,
    worker_pods,
)
from gpu_control_plane.ray.scheduling.submitter import submitter_amounts
from gpu_control_plane.ray.scheduling.surface import BatchSchedule, Manifest, Owner, PodSchedulingFields, Refusal

_NAME: Final = "volcano"
_QUEUE: Final = "volcano.sh/queue-name"
_TOPOLOGY: Final = "volcano.sh/network-topology-mode"
_HIGHEST_TIER: Final = "volcano.sh/network-topology-highest-tier-allowed"
_GROUP_NAME: Final = "scheduling.k8s.io/group-name"
_TASK: Final = "volcano.sh/task-spec"


class VolcanoPodGroup(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
    spec: dict[str, Any] = {}


class Volcano(BatchSchedule):
    """Annotates pods with their PodGroup, which belongs to what the user made."""

    kinds: ClassVar[tuple[type[Object], ...]] = (VolcanoPodGroup,)

    @override
    def refusal(self, owner: Owner) -> Refusal | None:
        if isinstance(owner, RayJob) and owner.spec.cluster_selector:
            return Refusal(
                "SchedulerUnsupported",
                "with Volcano a RayJob needs a cluster of its own: replace spec.clusterSelector by spec.rayClusterSpec",
            )
        tier = owner.metadata.labels.get(_HIGHEST_TIER)
        if tier is not None and _TOPOLOGY in owner.metadata.labels and not _is_number(tier):
            return Refusal("SchedulerUnsupported", f"label {_HIGHEST_TIER} says {tier}: write a number")
        return None

    @override
    def pod_scheduling_fields(self, owner: Owner, cluster: RayCluster, group: str) -> PodSchedulingFields:
        held = {**cluster.metadata.labels, **owner.metadata.labels}
        return PodSchedulingFields(
            scheduler_name=_NAME,
            labels={key: held[key] for key in (_QUEUE, Label.PRIORITY_CLASS.value) if held.get(key)},
            annotations={_GROUP_NAME: pod_group_name(owner, cluster), _TASK: group},
        )

    @override
    def cluster_annotations(self, owner: RayJob) -> Mapping[str, str]:
        return {}

    @override
    def objects(self, owner: Owner, cluster: RayCluster | None) -> list[Manifest]:
        """The PodGroup. That of a RayJob counts its submitter's resources, and not its pod: the submitter comes when
        the cluster is up. It shrinks when the job has ended."""
        if isinstance(owner, RayCluster) and owner.metadata.labels.get(Label.ORIGINATED_FROM_KIND) == "RayJob":
            return []  # The job has it.
        runs = isinstance(owner, RayJob) and owner.status.end_time is None
        spec_of = cluster.spec if cluster is not None else None
        if spec_of is None and isinstance(owner, RayJob) and runs:
            spec_of = owner.spec.ray_cluster_spec
        members, amounts = _size(spec_of) if spec_of is not None else (0, {})
        if isinstance(owner, RayJob) and runs:
            amounts = _sum(amounts, submitter_amounts(owner))
        labels = owner.metadata.labels
        spec: dict[str, Any] = {
            "minMember": members,
            "minResources": {name: quantity_text(amount) for name, amount in sorted(amounts.items())},
        }
        if queue := labels.get(_QUEUE):
            spec["queue"] = queue
        if priority := labels.get(Label.PRIORITY_CLASS):
            spec["priorityClassName"] = priority
        if mode := labels.get(_TOPOLOGY):
            tier = labels.get(_HIGHEST_TIER, "")
            spec["networkTopology"] = {"mode": mode, **({"highestTierAllowed": int(tier)} if _is_number(tier) else {})}
        reference = controlled_by(owner.resource, owner.name, owner.metadata.uid)
        return [
            {
                "apiVersion": VolcanoPodGroup.resource.api_version,
                "kind": VolcanoPodGroup.resource.kind,
                "metadata": {
                    "name": f"ray-{owner.name}-pg",
                    "namespace": owner.metadata.namespace,
                    "annotations": _for_scheduler(owner),
                    "ownerReferences": [msgspec.to_builtins(reference)],
                },
                "spec": spec,
            }
        ]


def pod_group_name(owner: Owner, cluster: RayCluster) -> str:
    """The PodGroup of a pod: that of the RayJob which made the cluster, else the cluster's."""
    labels = cluster.metadata.labels
    from_job = labels.get(Label.ORIGINATED_FROM_KIND) == "RayJob"
    return f"ray-{(from_job and labels.get(Label.ORIGINATED_FROM_NAME)) or owner.name}-pg"


def _for_scheduler(owner: Owner) -> dict[str, str]:
    """Annotations go along: Volcano and its plugins read some of a PodGroup."""
    return {key: value for key, value in owner.metadata.annotations.items() if key != LAST_APPLIED}


def _size(spec: RayClusterSpec) -> tuple[int, Amounts]:
    """Members and resources: with autoscaling the fewest, since the autoscaler adds the others one by one."""
    if spec.autoscales:
        return 1 + sum(map(least_group_pods, spec.worker_group_specs)), least_amounts(spec)
    return 1 + worker_pods(spec), desired_amounts(spec)


def _sum(first: Amounts, second: Amounts) -> Amounts:
    total: Amounts = defaultdict(Decimal, first)
    for name, amount in second.items():
        total[name] += amount
    return total


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
