"""What batch schedulers are told: scheduling fields of pods, PodGroups, and refusals in words."""

import json
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.ray.cluster.manifests import ClusterContext
from gpu_control_plane.ray.options import BatchScheduler
from gpu_control_plane.ray.scheduling import BatchSchedule, PodSchedulingFields, scheduler_for, scheduling_fields_of
from unit.ray.ray_clusters import UID, Json, group, head_of, ray_cluster, template, worker_of

GPU = "nvidia.com/gpu"


def scheduler(name: BatchScheduler) -> BatchSchedule:
    found = scheduler_for(name)
    assert found is not None
    return found


VOLCANO, YUNIKORN, KAI, PLUGINS = map(
    scheduler,
    (BatchScheduler.VOLCANO, BatchScheduler.YUNIKORN, BatchScheduler.KAI, BatchScheduler.SCHEDULER_PLUGINS),
)


def gpu_cluster(labels: Json | None = None, **rest: Any) -> RayCluster:
    """A head with a CPU, and workers that need two CPUs and a GPU each: three of them, at least one."""
    held = template({"cpu": 2, GPU: 1}, {"cpu": "1500m"})
    return ray_cluster(
        group("gpu", held, replicas=3, minReplicas=1, maxReplicas=5),
        head={"template": template({"cpu": 1, "memory": "1Gi"})},
        labels=labels,
        **rest,
    )


def ray_job(labels: Json | None = None, status: Json | None = None, **spec: Any) -> RayJob:
    """A job on such a cluster."""
    whole = {"rayClusterSpec": msgspec.to_builtins(gpu_cluster().spec), "entrypoint": "python job.py", **spec}
    metadata = {"name": "job", "namespace": "ns", "uid": UID, "labels": labels or {}}
    return msgspec.convert({"metadata": metadata, "spec": whole, "status": status or {}}, RayJob)


def test_kubernetes_own_scheduler_is_told_nothing() -> None:
    assert scheduler_for(BatchScheduler.NONE) is None
    assert scheduling_fields_of(None, gpu_cluster(), gpu_cluster()) == {}


def test_marks_reach_the_pods_of_their_group() -> None:
    cluster = gpu_cluster({"volcano.sh/queue-name": "research"})
    context = ClusterContext(cluster=cluster, scheduling_fields=scheduling_fields_of(VOLCANO, cluster, cluster))
    for pod, task in ((head_of(context), "headgroup"), (worker_of(context), "gpu")):
        assert pod["spec"]["schedulerName"] == "volcano"
        assert pod["metadata"]["labels"]["volcano.sh/queue-name"] == "research"
        assert pod["metadata"]["annotations"]["volcano.sh/task-spec"] == task


# Volcano


def test_volcano_waits_for_all_pods_that_are_asked_for() -> None:
    (made,) = VOLCANO.objects(gpu_cluster(), gpu_cluster())
    assert (made["apiVersion"], made["kind"]) == ("scheduling.volcano.sh/v1beta1", "PodGroup")
    assert made["metadata"]["name"] == "ray-rc-pg"
    assert made["metadata"]["ownerReferences"][0]["uid"] == UID
    needed = {"cpu": "5500m", "memory": "1073741824", GPU: "3"}
    assert made["spec"] == {"minMember": 4, "minResources": needed}


def test_volcano_waits_for_the_fewest_where_the_autoscaler_adds_the_others() -> None:
    (made,) = VOLCANO.objects(gpu_cluster(enableInTreeAutoscaling=True), gpu_cluster(enableInTreeAutoscaling=True))
    assert made["spec"] == {"minMember": 2, "minResources": {"cpu": "2500m", "memory": "1073741824", GPU: "1"}}


def test_volcano_is_told_queue_priority_and_topology() -> None:
    labels = {
        "volcano.sh/queue-name": "research",
        "ray.io/priority-class-name": "high",
        "volcano.sh/network-topology-mode": "hard",
        "volcano.sh/network-topology-highest-tier-allowed": "2",
    }
    (made,) = VOLCANO.objects(gpu_cluster(labels), gpu_cluster(labels))
    assert (
        made["spec"].items()
        >= {
            "queue": "research",
            "priorityClassName": "high",
            "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
        }.items()
    )


def test_annotations_go_along_with_the_podgroup() -> None:
    notes = {"volcano.sh/preemptable": "true", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    (made,) = VOLCANO.objects(gpu_cluster(annotations=notes), gpu_cluster())
    assert made["metadata"]["annotations"] == {"volcano.sh/preemptable": "true"}


def test_the_podgroup_of_a_job_counts_the_resources_of_its_submitter_and_not_its_pod() -> None:
    (made,) = VOLCANO.objects(ray_job(), None)
    assert made["metadata"]["name"] == "ray-job-pg"
    assert made["spec"]["minMember"] == 4
    assert made["spec"]["minResources"]["cpu"] == "6"


def test_the_podgroup_of_a_job_that_has_ended_shrinks_to_what_is_left() -> None:
    ended = ray_job(status={"endTime": "2026-01-01T00:00:00Z"})
    (left,) = VOLCANO.objects(ended, gpu_cluster())
    (gone,) = VOLCANO.objects(ended, None)
    assert left["spec"] == {"minMember": 4, "minResources": {"cpu": "5500m", "memory": "1073741824", GPU: "3"}}
    assert gone["spec"] == {"minMember": 0, "minResources": {}}


def test_a_cluster_of_a_job_is_in_the_group_of_the_job() -> None:
    labels = {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "job"}
    cluster = gpu_cluster(labels)
    assert VOLCANO.objects(cluster, cluster) == []
    assert (
        VOLCANO.pod_scheduling_fields(cluster, cluster, "gpu").annotations["scheduling.k8s.io/group-name"]
        == "ray-job-pg"
    )


# YuniKorn


def test_yunikorn_is_told_application_and_queue() -> None:
    cluster = gpu_cluster({"yunikorn.apache.org/app-id": "app-1", "yunikorn.apache.org/queue": "root.research"})
    assert YUNIKORN.pod_scheduling_fields(cluster, cluster, "gpu") == PodSchedulingFields(
        scheduler_name="yunikorn", labels={"applicationId": "app-1", "queue": "root.research"}
    )
    assert YUNIKORN.objects(cluster, cluster) == []


def test_yunikorn_gangs_have_the_head_and_the_fewest_workers() -> None:
    held = template({"cpu": 2, GPU: 1})
    held["spec"]["nodeSelector"] = {"gpu": "yes"}
    cluster = ray_cluster(
        group("gpu", held, replicas=3, minReplicas=2, numOfHosts=2),
        head={"template": template({"cpu": 1})},
        labels={"ray.io/gang-scheduling-enabled": ""},
    )
    annotations = YUNIKORN.pod_scheduling_fields(cluster, cluster, "gpu").annotations
    assert annotations["yunikorn.apache.org/task-group-name"] == "gpu"
    assert json.loads(annotations["yunikorn.apache.org/task-groups"]) == [
        {"name": "headgroup", "minMember": 1, "minResource": {"cpu": "1"}},
        {"name": "gpu", "minMember": 4, "minResource": {"cpu": "2", GPU: "1"}, "nodeSelector": {"gpu": "yes"}},
    ]


def test_all_pods_of_a_yunikorn_job_tell_of_the_same_groups() -> None:
    job = ray_job({"ray.io/gang-scheduling-enabled": "true"})
    carried = dict(YUNIKORN.cluster_annotations(job))
    cluster = gpu_cluster({"ray.io/gang-scheduling-enabled": "true"}, annotations=carried)
    submitter = YUNIKORN.pod_scheduling_fields(job, cluster, "submittergroup")
    worker = YUNIKORN.pod_scheduling_fields(cluster, cluster, "gpu")
    key = "yunikorn.apache.org/task-groups"
    assert submitter.annotations[key] == worker.annotations[key] == carried[key]
    assert [part["name"] for part in json.loads(carried[key])] == ["headgroup", "gpu", "submittergroup"]


# KAI and scheduler-plugins


def test_kai_is_told_the_queue() -> None:
    cluster = gpu_cluster({"kai.scheduler/queue": "team"})
    assert KAI.pod_scheduling_fields(cluster, cluster, "gpu") == PodSchedulingFields(
        scheduler_name="kai-scheduler", labels={"kai.scheduler/queue": "team"}
    )
    assert KAI.objects(cluster, cluster) == []


def test_scheduler_plugins_make_a_group_where_it_is_asked_for() -> None:
    plain, gang = gpu_cluster(), gpu_cluster({"ray.io/gang-scheduling-enabled": "true"})
    assert PLUGINS.objects(plain, plain) == []
    assert PLUGINS.pod_scheduling_fields(plain, plain, "gpu") == PodSchedulingFields(
        scheduler_name="scheduler-plugins-scheduler"
    )
    (made,) = PLUGINS.objects(gang, gang)
    assert (made["apiVersion"], made["metadata"]["name"]) == ("scheduling.x-k8s.io/v1alpha1", "rc")
    assert made["spec"]["minMember"] == 4
    assert PLUGINS.pod_scheduling_fields(gang, gang, "gpu").labels == {"scheduling.x-k8s.io/pod-group": "rc"}


@pytest.mark.parametrize(
    ("schedule", "owner", "words"),
    [
        (VOLCANO, ray_job(), None),
        (VOLCANO, ray_job(clusterSelector={"ray.io/cluster": "rc"}), "cluster of its own"),
        (VOLCANO, gpu_cluster({"volcano.sh/network-topology-mode": "hard"}), None),
        (
            VOLCANO,
            gpu_cluster(
                {
                    "volcano.sh/network-topology-mode": "hard",
                    "volcano.sh/network-topology-highest-tier-allowed": "high",
                }
            ),
            "write a number",
        ),
        (YUNIKORN, ray_job(), None),
        (KAI, gpu_cluster(), None),
        (KAI, ray_job(), "K8sJobMode"),
        (KAI, ray_job(submissionMode="HTTPMode"), None),
        (PLUGINS, gpu_cluster({"ray.io/gang-scheduling-enabled": "true"}), None),
        (PLUGINS, ray_job(), None),
        (PLUGINS, ray_job({"ray.io/gang-scheduling-enabled": "true"}), "not RayJobs"),
    ],
)
def test_a_scheduler_refuses_what_it_cannot_do(
    schedule: BatchSchedule, owner: RayCluster | RayJob, words: str | None
) -> None:
    refusal = schedule.refusal(owner)
    assert (refusal is None) if words is None else (refusal is not None and words in refusal.message)
