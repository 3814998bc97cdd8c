"""What samples of RayClusters for batch schedulers become."""

import re
from collections.abc import Mapping
from typing import Any, Final

from gpu_control_plane.ray.options import BatchScheduler, RayOptions
from integration.ray.expected.checks import GI, UNLIMITED, ExpectedCluster, Json, Pods
from integration.ray.expected.sample import Sample


def _gang(name: BatchScheduler, scheduler: str, head: Json, workers: Json, **more: Any) -> Sample:
    """A head and two workers, of one CPU each, that a batch scheduler puts on nodes together."""
    spec = {"schedulerName": scheduler}
    return Sample(
        options=RayOptions(batch_scheduler=name),
        expected=ExpectedCluster(
            head=Pods(start=("--memory=2147483648", "--num-cpus=1"), spec=spec, **head),
            groups={
                "together": Pods(count=2, start=("--memory=1073741824", "--num-cpus=1"), spec=spec, **workers),
            },
            desired=("3", 4 * GI, "0", "0"),
            bounds=(2, 2),
            **more,
        ),
    )


_TOGETHER: Final = {"minMember": 3, "minResources": {"cpu": "3", "memory": re.compile("^(4Gi|4294967296)$")}}

_TASK_GROUPS: Final = (
    '[{"name":"headgroup","minMember":1,"minResource":{"cpu":"1","memory":"2147483648"}},'
    '{"name":"together","minMember":2,"minResource":{"cpu":"1","memory":"1073741824"}}]'
)


_COSCHEDULED: Final[Json] = {"labels": {"scheduling.x-k8s.io/pod-group": "scheduler-plugins"}}

_KAI: Final[Json] = {"labels": {"kai.scheduler/queue": "research"}}

_VOLCANO_LABELS: Final = {"volcano.sh/queue-name": "research", "ray.io/priority-class-name": "high"}


def _volcano(task: str) -> Json:
    annotations = {"scheduling.k8s.io/group-name": "ray-volcano-pg", "volcano.sh/task-spec": task}
    return {"labels": _VOLCANO_LABELS, "annotations": annotations}


def _yunikorn(group: str) -> Json:
    annotations = {"yunikorn.apache.org/task-groups": _TASK_GROUPS, "yunikorn.apache.org/task-group-name": group}
    return {"labels": {"applicationId": "vision-1", "queue": "root.research"}, "annotations": annotations}


SCHEDULED: Final[Mapping[str, Sample]] = {
    "cluster-volcano": _gang(
        BatchScheduler.VOLCANO,
        "volcano",
        _volcano("headgroup"),
        _volcano("together"),
        beside={
            "PodGroup/ray-{name}-pg": {"spec": {**_TOGETHER, "queue": "research", "priorityClassName": "high"}},
        },
    ),
    "cluster-yunikorn": _gang(BatchScheduler.YUNIKORN, "yunikorn", _yunikorn("headgroup"), _yunikorn("together")),
    "cluster-scheduler-plugins": _gang(
        BatchScheduler.SCHEDULER_PLUGINS,
        "scheduler-plugins-scheduler",
        _COSCHEDULED,
        _COSCHEDULED,
        beside={"PodGroup/{name}": {"spec": _TOGETHER}},
    ),
    "cluster-kai": _gang(BatchScheduler.KAI, "kai-scheduler", _KAI, _KAI),
    "cluster-kai-gpu-fraction": Sample(
        options=RayOptions(batch_scheduler=BatchScheduler.KAI),
        expected=ExpectedCluster(
            head=Pods(spec={"schedulerName": "kai-scheduler"}, **_KAI),
            groups={
                "halves": Pods(
                    count=2,
                    start=("--num-gpus=1",),
                    spec={"schedulerName": "kai-scheduler"},
                    annotations={"gpu-fraction": "0.5"},
                    **_KAI,
                )
            },
            bounds=(0, UNLIMITED),
        ),
    ),
}
