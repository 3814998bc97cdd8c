"""Reviews of objects of Ray: what is refused, and what an object that is wrong already may still become."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
import pytest

from gpu_control_plane.admission.rays import review_ray
from gpu_control_plane.api.ray import RayCluster, RayJob
from gpu_control_plane.kube.admission import AdmissionResponse
from gpu_control_plane.rules.ray.cluster import cluster_problems
from gpu_control_plane.rules.ray.job import job_problems
from ray_samples import changed

WORKER = "spec.workerGroupSpecs.0"
WRONG: Mapping[str, object] = {f"{WORKER}.minReplicas": 9}
SENTENCE = (
    "spec.workerGroupSpecs[0].minReplicas: 9 is more than maxReplicas, which is 5: lower it, or raise maxReplicas"
)


def cluster(edits: Mapping[str, object] | None = None) -> RayCluster:
    return msgspec.convert(changed("cluster-minimal", edits or {}), RayCluster)


def reviewed(
    after: Mapping[str, object], before: Mapping[str, object] | None = None, *, only_warn: bool = False
) -> AdmissionResponse:
    old = cluster(before) if before is not None else None
    return review_ray(cluster(after), old, cluster_problems, only_warn=only_warn)


def test_what_can_be_carried_out_is_admitted_without_a_word() -> None:
    assert reviewed({}) == AdmissionResponse(allowed=True)


def test_what_cannot_be_carried_out_is_refused_with_the_reason() -> None:
    response = reviewed(WRONG)
    assert not response.allowed
    assert response.message == f"This RayCluster cannot be carried out: {SENTENCE}."


def test_every_reason_is_named_at_once() -> None:
    response = reviewed({**WRONG, "spec.headGroupSpec.template.spec.containers": []})
    assert SENTENCE in response.message
    assert "spec.headGroupSpec.template.spec.containers: there is none: the first one runs Ray." in response.message


def test_where_another_operator_is_active_nothing_is_refused() -> None:
    response = reviewed(WRONG, only_warn=True)
    assert response.allowed
    assert response.warnings == (SENTENCE,)


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ({}, WRONG, False),
        (WRONG, WRONG, True),
        (WRONG, {f"{WORKER}.minReplicas": 8}, True),  # it gets better
        (WRONG, {}, True),
        (WRONG, {**WRONG, "spec.suspend": True}, True),
        (WRONG, {**WRONG, "metadata.annotations": {"a": "b"}}, True),
        (WRONG, {**WRONG, f"{WORKER}.template.spec.containers": []}, False),  # it gets worse
        (WRONG, {**WRONG, "metadata.annotations": {"ray.io/ft-enabled": "true"}}, True),
    ],
)
def test_an_update_brings_nothing_wrong_that_was_not_there(
    before: Mapping[str, object], after: Mapping[str, object], allowed: bool
) -> None:
    assert reviewed(after, before).allowed is allowed


def test_a_group_that_was_wrong_may_change_its_place() -> None:
    wrong = changed("cluster-autoscaler-v2", {"spec.workerGroupSpecs.1.idleTimeoutSeconds": -1})
    before = msgspec.convert(wrong, RayCluster)
    del wrong["spec"]["workerGroupSpecs"][0]
    after = msgspec.convert(wrong, RayCluster)
    assert review_ray(after, before, cluster_problems).allowed


def test_what_is_being_deleted_is_not_held_up() -> None:
    doomed = cluster({**WRONG, "metadata.deletionTimestamp": datetime(2026, 11, 18, tzinfo=UTC).isoformat()})
    assert review_ray(doomed, cluster(), cluster_problems) == AdmissionResponse(allowed=True)


def test_what_another_cluster_runs_is_not_judged() -> None:
    job = msgspec.convert(changed("job-multikueue", {"spec.backoffLimit": -1}), RayJob)
    assert review_ray(job, None, job_problems) == AdmissionResponse(allowed=True)
