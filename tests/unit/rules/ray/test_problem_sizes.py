"""How much is said of objects that are wrong in thousands of ways, or quote texts as long as an object may be.

What is said is kept in memory, logged, and written into statuses and answers: its size must not follow from the spec.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.admission.rays import review_ray
from gpu_control_plane.api.ray import RayCluster, RayCronJob, RayJob, RayService
from gpu_control_plane.kube.sentences import shortened, some_of
from gpu_control_plane.ray.cluster.desired import capacity, desired
from gpu_control_plane.ray.cluster.manifests import ClusterContext
from gpu_control_plane.rules.ray.cluster import cluster_problems
from gpu_control_plane.rules.ray.cronjob import cronjob_problems
from gpu_control_plane.rules.ray.gpus import PoolResources
from gpu_control_plane.rules.ray.job import job_problems
from gpu_control_plane.rules.ray.problem import Problem, sentences
from gpu_control_plane.rules.ray.service import service_problems
from unit.ray.ray_clusters import group, ray_cluster, template

LONG = "x" * 100_000
MANY = 1_000
MOST = 16_000
"""Characters: far less than an object may have, and than the message of a condition."""

Json = dict[str, Any]


def policy(**rules: Any) -> Json:
    return {"networkPolicy": {"mode": "DenyAllIngress", **rules}}


HOSTILE: list[Json] = [
    {"workerGroupSpecs": [group(LONG), *(group(f"g{index}") for index in range(MANY))]},
    {"workerGroupSpecs": [group(f"{'g' * 50}-{index}") for index in range(MANY)], **policy()},
    {"workerGroupSpecs": [group("same", minReplicas=-1, labels={"/": LONG})] * MANY},
    {"workerGroupSpecs": [group(labels={f"{index}{LONG[:500]}/": LONG[:500] for index in range(MANY)})]},
    {"workerGroupSpecs": [group(template={"spec": {"containers": LONG}})]},
    {"workerGroupSpecs": [group(LONG)], **policy(workerGroups=[{"groupName": f"{index}"} for index in range(MANY)])},
    {"workerGroupSpecs": [], **policy(workerGroups=[{"groupName": LONG, "egressRules": [{}]}] * MANY)},
    {"rayVersion": LONG, "authOptions": {"mode": "token", "enableK8sTokenAuth": True}},
    {"rayVersion": f"{'9' * 5_000}.1.0", "workerGroupSpecs": [group(priority=1)] * MANY},
    {"headGroupSpec": {"template": template(env=[{"name": f"RAY_TLS_{LONG}"}] * 10)}, "tlsOptions": {"enabled": True}},
    {"headGroupSpec": {"template": {"spec": {"containers": [{}], "restartPolicy": LONG}}}, "rayVersion": "2.52.0"}
    | {"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": "v2"}},
]


def spec_of(parts: list[Json]) -> Json:
    spec: Json = {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [group()]}
    for part in parts:
        spec |= part
    return spec


def said_of(spec: Json) -> dict[str, tuple[Problem, ...]]:
    meta = {"name": "a", "namespace": "ns", "annotations": {"gpu.deckhouse.io/idle-timeout": LONG}}
    of_service = {"rayClusterConfig": spec, "upgradeStrategy": {"type": LONG}}
    of_job = {"rayClusterSpec": spec, "submissionMode": LONG, "jobId": LONG, "runtimeEnvYAML": f"a: [{LONG}"}
    of_job |= {"deletionStrategy": {"deletionRules": [{"policy": "DeleteCluster", "condition": {}}] * MANY}}
    return {
        "cluster": cluster_problems(msgspec.convert({"metadata": meta, "spec": spec}, RayCluster)),
        "service": service_problems(msgspec.convert({"metadata": meta, "spec": of_service}, RayService)),
        "job": job_problems(msgspec.convert({"metadata": meta, "spec": of_job}, RayJob)),
        "cron": cronjob_problems(
            msgspec.convert({"metadata": meta, "spec": {"schedule": LONG, "jobTemplate": of_job}}, RayCronJob)
        ),
    }


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(HOSTILE), max_size=4, unique_by=repr))
def test_what_is_said_of_an_object_has_a_bound_whatever_it_holds(parts: list[Json]) -> None:
    for kind, problems in said_of(spec_of(parts)).items():
        assert problems
        assert len(sentences(problems)) < MOST, kind
        assert len(problems) <= 21


@pytest.mark.parametrize("part", HOSTILE, ids=range(len(HOSTILE)))
def test_every_hostile_part_is_told_of(part: Json) -> None:
    plain = cluster_problems(msgspec.convert({"metadata": {"name": "a"}, "spec": spec_of([part])}, RayCluster))
    assert plain
    assert len(sentences(plain)) < MOST


def test_a_long_message_says_at_its_end_what_to_do() -> None:
    (problem,) = cluster_problems(ray_cluster(group(labels={"a": LONG})))
    assert problem.message.endswith("at most 63 letters, digits, -, _ and .")
    assert len(problem.message) == 500


def test_a_group_that_is_not_there_is_told_with_some_of_those_that_are() -> None:
    names = [group(f"g{index}") for index in range(9)]
    (problem,) = cluster_problems(ray_cluster(*names, **policy(workerGroups=[{"groupName": "h"}])))
    assert problem.message == "there is no worker group h: there is g0, g1, g2, g3, g4, 4 more"


def test_what_was_wrong_in_many_ways_can_be_mended_in_steps() -> None:
    def wrong(count: int, **spec: Any) -> RayCluster:
        return ray_cluster(*(group(f"g{index}", maxReplicas=-1) for index in range(count)), **spec)

    other = wrong(40, authOptions={"mode": "token"})
    assert review_ray(other, None, cluster_problems).allowed is False
    assert review_ray(wrong(39), wrong(40), cluster_problems).allowed
    assert review_ray(other, wrong(40), cluster_problems).allowed
    assert not review_ray(wrong(9, authOptions={"mode": "token"}), wrong(10), cluster_problems).allowed


def test_what_is_told_of_a_valid_cluster_has_a_bound() -> None:
    hostile = [group(f"g{index}", resources={LONG[:500]: LONG[:500]}) for index in range(300)]
    wanted = desired(ClusterContext(cluster=ray_cluster(*hostile)), None, b"x" * 32, gang=True)
    assert not wanted.problems
    assert sum(map(len, wanted.warnings)) < MOST
    asking = [group(f"g{index}", template=template({f"gpu.deckhouse.io/{LONG}": 1})) for index in range(3)]
    verdict = capacity(ray_cluster(*asking), PoolResources(), lambda _: 0)
    assert verdict is not None
    assert len(verdict.message) < MOST


@given(st.text(), st.integers(10, 60))
def test_a_shortened_text_is_as_long_as_it_may_be(text: str, most: int) -> None:
    assert len(shortened(text, most)) == min(len(text), most)


def test_names_are_listed_up_to_a_few() -> None:
    assert some_of([]) == ""
    assert some_of(["a", "b"], " and ") == "a and b"
    assert some_of(["a"] * 1_005) == "a, a, a, a, a, 1,000 more"
