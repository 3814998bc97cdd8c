"""The steps by which a RayCluster with state in Redis goes."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Annotation, Finalizer
from gpu_control_plane.ray.cluster.deletion import Deletion, NextStep, needs_redis_cleanup, plan_deletion
from gpu_control_plane.ray.owned import JobCondition, JobStatus, OwnedJob
from unit.ray.cluster.pod_world import NOW, PodWorld
from unit.ray.ray_clusters import group, ray_cluster

LIMIT = timedelta(minutes=5)


def being_deleted(**given: Any) -> PodWorld:
    made = PodWorld(ray_cluster(group(), **given))
    made.settle()
    metadata = msgspec.structs.replace(
        made.cluster.metadata, finalizers=(Finalizer.REDIS_CLEANUP.value,), deletion_timestamp=NOW
    )
    made.cluster = msgspec.structs.replace(made.cluster, metadata=metadata)
    return made


def plan(made: PodWorld, job: OwnedJob | None = None, *, after: float = 1) -> Deletion:
    now = NOW + timedelta(seconds=after)
    return plan_deletion(made.cluster, tuple(made.pods.values()), job, now=now, default_timeout=LIMIT)


def job(*conditions: str) -> OwnedJob:
    return OwnedJob(status=JobStatus(conditions=tuple(JobCondition(type=kind, status="True") for kind in conditions)))


def test_pods_go_first() -> None:
    found = plan(being_deleted())
    assert found.step is NextStep.WAIT
    assert len(found.removals) == 2


def test_the_job_waits_for_the_head_and_not_for_workers() -> None:
    made = being_deleted()
    made.delete("headgroup-0")
    made.begins_to_go("workers-1")
    assert plan(made).step is NextStep.CREATE_JOB


@pytest.mark.parametrize(("conditions", "step"), [
    ((), NextStep.WAIT), (("Complete",), NextStep.REMOVE_FINALIZER), (("Failed",), NextStep.FORCE),
])  # fmt: skip
def test_the_cluster_goes_when_the_job_has_ended_either_way(conditions: tuple[str, ...], step: NextStep) -> None:
    made = being_deleted()
    made.pods.clear()
    assert plan(made, job(*conditions)).step is step


def test_keys_that_may_be_left_are_told_of_with_the_reason() -> None:
    made = being_deleted()
    made.pods.clear()
    failed = JobCondition(type="Failed", status="True", reason="DeadlineExceeded")
    why = plan(made, OwnedJob(status=JobStatus(conditions=(failed,)))).why
    assert why == "the Job , which removes them, has failed (DeadlineExceeded)"
    assert plan(made, job("Complete")).why == ""
    assert plan(made, after=300).why == "they could not be removed in time"


@pytest.mark.parametrize("head", [{"spec": {"containers": []}}, {"spec": {"containers": "ray"}}, {"spec": []}])
def test_a_head_of_which_no_pod_can_be_made_is_let_go_with_a_warning(head: dict[str, Any]) -> None:
    made = being_deleted()
    made.pods.clear()
    made.cluster = msgspec.structs.replace(made.cluster, spec=ray_cluster(head={"template": head}).spec)
    found = plan(made)
    assert found.step is NextStep.FORCE
    assert found.why.startswith("no pod can be made that removes them (spec.headGroupSpec.template")


def test_faults_of_workers_do_not_keep_keys_from_being_removed() -> None:
    made = being_deleted()
    made.pods.clear()
    wrong = ray_cluster(group(minReplicas=5, maxReplicas=2, template={}))
    made.cluster = msgspec.structs.replace(made.cluster, spec=wrong.spec)
    assert plan(made).step is NextStep.CREATE_JOB


@pytest.mark.parametrize(("annotation", "after", "step"), [
    ("", 299, NextStep.CREATE_JOB), ("", 300, NextStep.FORCE), ("60", 60, NextStep.FORCE),
    ("60", 59, NextStep.CREATE_JOB), ("nonsense", 299, NextStep.CREATE_JOB), ("0", 299, NextStep.CREATE_JOB),
    ("9" * 40, 300, NextStep.FORCE),
])  # fmt: skip
def test_it_takes_no_longer_than_its_time(annotation: str, after: float, step: NextStep) -> None:
    made = being_deleted(annotations={Annotation.FT_DELETION_TIMEOUT.value: annotation} if annotation else {})
    made.pods.clear()
    assert plan(made, after=after).step is step


def test_without_the_finalizer_nothing_is_to_be_done() -> None:
    made = being_deleted()
    metadata = msgspec.structs.replace(made.cluster.metadata, finalizers=())
    made.cluster = msgspec.structs.replace(made.cluster, metadata=metadata)
    assert plan(made).step is NextStep.NOTHING


@pytest.mark.parametrize(("cluster", "expected"), [
    (ray_cluster(), False),
    (ray_cluster(gcsFaultToleranceOptions={"redisAddress": "r:1"}), True),
    (ray_cluster(gcsFaultToleranceOptions={"backend": "rocksdb"}), False),
    (ray_cluster(annotations={Annotation.FT_ENABLED.value: "true"}), True),
    (ray_cluster(annotations={Annotation.FT_ENABLED.value: "false"}), False),
])  # fmt: skip
def test_only_what_is_in_redis_is_cleaned_up(cluster: RayCluster, expected: bool) -> None:
    assert needs_redis_cleanup(cluster) is expected
