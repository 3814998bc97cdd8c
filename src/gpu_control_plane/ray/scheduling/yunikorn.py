"""YuniKorn: pods name their application and queue, and with gang scheduling the groups that they wait for."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, override

from gpu_control_plane.api.ray.cluster import RayCluster, RayClusterSpec
from gpu_control_plane.api.ray.job import RayJob, SubmissionMode
from gpu_control_plane.api.ray.names import HEAD_GROUP, Label
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.ray.demand import least_group_pods, pod_amounts, quantity_text
from gpu_control_plane.ray.scheduling.submitter import SUBMITTER_GROUP, submitter_amounts, submitter_template
from gpu_control_plane.ray.scheduling.surface import BatchSchedule, Manifest, Owner, PodSchedulingFields, Refusal

_NAME: Final = "yunikorn"
_LABELS: Final = {"yunikorn.apache.org/app-id": "applicationId", "yunikorn.apache.org/queue": "queue"}
"""Labels of the object of Ray, and what pods carry for them."""
_TASK_GROUP: Final = "yunikorn.apache.org/task-group-name"
_TASK_GROUPS: Final = "yunikorn.apache.org/task-groups"


class YuniKorn(BatchSchedule):
    """Labels pods with application and queue, and annotates them with task groups."""

    kinds: ClassVar[tuple[type[Object], ...]] = ()

    @override
    def refusal(self, owner: Owner) -> Refusal | None:
        return None

    @override
    def pod_scheduling_fields(self, owner: Owner, cluster: RayCluster, group: str) -> PodSchedulingFields:
        held = {**cluster.metadata.labels, **owner.metadata.labels}
        labels = {pod_label: held[label] for label, pod_label in _LABELS.items() if held.get(label)}
        if Label.GANG.value not in held:
            return PodSchedulingFields(scheduler_name=_NAME, labels=labels)
        given = owner.metadata.annotations.get(_TASK_GROUPS) or cluster.metadata.annotations.get(_TASK_GROUPS)
        return PodSchedulingFields(
            scheduler_name=_NAME,
            labels=labels,
            annotations={_TASK_GROUPS: given or task_groups(owner), _TASK_GROUP: group},
        )

    @override
    def cluster_annotations(self, owner: RayJob) -> Mapping[str, str]:
        if Label.GANG.value not in owner.metadata.labels:
            return {}
        return {_TASK_GROUPS: owner.metadata.annotations.get(_TASK_GROUPS) or task_groups(owner)}

    @override
    def objects(self, owner: Owner, cluster: RayCluster | None) -> list[Manifest]:
        return []


def task_groups(owner: Owner) -> str:
    """The pods that have to fit at once, as JSON: those of a cluster, and of a job the one that submits it."""
    groups = list(_submitter_group(owner)) if isinstance(owner, RayJob) else []
    spec = owner.spec.ray_cluster_spec if isinstance(owner, RayJob) else owner.spec
    return json.dumps([*(_cluster_groups(spec) if spec is not None else ()), *groups], separators=(",", ":"))


def _cluster_groups(spec: RayClusterSpec) -> Iterator[dict[str, Any]]:
    yield _group(HEAD_GROUP, 1, spec.head_group_spec.template)
    for group in spec.worker_group_specs:
        yield _group(group.group_name, least_group_pods(group), group.template)


def _submitter_group(job: RayJob) -> Iterator[dict[str, Any]]:
    if job.spec.submission_mode is SubmissionMode.K8S_JOB:
        template = submitter_template(job)
        yield {**_group(SUBMITTER_GROUP, 1, template), "minResource": _texts(submitter_amounts(job))}


def _group(name: str, members: int, template: Mapping[str, Any]) -> dict[str, Any]:
    spec = template.get("spec") or {}
    where = {key: spec[key] for key in ("nodeSelector", "tolerations", "affinity") if spec.get(key)}
    return {"name": name, "minMember": members, "minResource": _texts(pod_amounts(spec)), **where}


def _texts(amounts: Mapping[str, Any]) -> dict[str, str]:
    return {name: quantity_text(amount) for name, amount in sorted(amounts.items())}
