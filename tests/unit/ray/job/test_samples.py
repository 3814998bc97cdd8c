"""RayJobs and RayCronJobs as users write them: each begins, and what is made for it is whole."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.cronjob import RayCronJob
from gpu_control_plane.api.ray.job import RayJob, SubmissionMode
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.ray.cronjob.controller import ray_job
from gpu_control_plane.ray.job.controller import spec_problems
from gpu_control_plane.ray.job.decide import decide
from gpu_control_plane.ray.job.manifests import ray_cluster, submitter_job
from gpu_control_plane.ray.job.snapshot import Snapshot
from gpu_control_plane.ray.job.submission import submission
from unit.ray.job.builders import NOW

SAMPLES = Path(__file__).parents[3] / "ray_samples"


def documents(pattern: str, kind: str) -> list[Any]:
    found = []
    for path in sorted(SAMPLES.glob(pattern)):
        found += [
            pytest.param(one, id=path.stem)
            for one in yaml.safe_load_all(path.read_text())
            if one is not None and one["kind"] == kind
        ]
    return found


def named(wire: dict[str, Any]) -> RayJob:
    """The RayJob as the API server would have taken it."""
    held = msgspec.convert(wire, RayJob)
    name = held.name or f"{held.metadata.generate_name}abcde"
    metadata = ObjectMeta(name=name, namespace="team", uid="u1", labels=held.metadata.labels)
    return replace(held, metadata=metadata)


@pytest.mark.parametrize("wire", documents("job-*.yaml", "RayJob"))
def test_a_sample_begins_and_what_is_made_for_it_is_whole(wire: dict[str, Any]) -> None:
    job = named(wire)
    problems = tuple(spec_problems(job))
    assert problems == ()
    decision = decide(Snapshot(job=job, now=NOW, suffix="x1x1x", problems=problems))
    assert decision.status.job_deployment_status == ("Suspended" if job.spec.suspend else "Initializing")
    job = replace(job, status=replace(decision.status, dashboard_url="svc:8265"))
    assert submission(job).entrypoint == job.spec.entrypoint
    if job.spec.ray_cluster_spec is None:
        return
    made = msgspec.convert(json.loads(json.dumps(ray_cluster(job))), RayCluster)
    sidecar = job.spec.submission_mode is SubmissionMode.SIDECAR
    containers = made.spec.head_group_spec.template["spec"]["containers"]
    assert [one["name"] for one in containers].count("ray-job-submitter") == sidecar
    if not sidecar:
        assert made.spec == job.spec.ray_cluster_spec
    pod = submitter_job(job, made)["spec"]["template"]["spec"]
    assert pod["restartPolicy"] in ("Never", "OnFailure")
    assert pod["containers"][0]["command"]


@pytest.mark.parametrize("wire", documents("cronjob-*.yaml", "RayCronJob"))
def test_a_sample_of_a_raycronjob_makes_a_rayjob_that_can_be_carried_out(wire: dict[str, Any]) -> None:
    cron = msgspec.convert(wire, RayCronJob)
    cron = replace(cron, metadata=replace(cron.metadata, namespace="team", uid="k1"))
    assert tuple(spec_problems(msgspec.convert(ray_job(cron, NOW), RayJob))) == ()
