"""The job as Ray is told of it, and the names of the calls about it. Pure."""

from typing import Any

import msgspec

from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.ray.dashboard.errors import NotSent
from gpu_control_plane.ray.dashboard.models import JobSubmission
from gpu_control_plane.ray.job.snapshot import Call, Submitter
from gpu_control_plane.rules.ray.yaml_map import BadYAMLMap, read_map


def submission(job: RayJob) -> JobSubmission:
    """What the operator submits. Raises `NotSent` for what validation would have refused."""
    spec = job.spec
    return JobSubmission(
        entrypoint=spec.entrypoint,
        submission_id=job.status.job_id,
        runtime_env=runtime_env(spec.runtime_env_yaml),
        metadata=spec.metadata,
        entrypoint_num_cpus=spec.entrypoint_num_cpus,
        entrypoint_num_gpus=spec.entrypoint_num_gpus,
        entrypoint_resources=resources(spec.entrypoint_resources),
    )


def runtime_env(text: str) -> dict[str, Any]:
    """Ray's runtime environment."""
    try:
        return read_map(text)
    except BadYAMLMap as error:
        raise NotSent(f"spec.runtimeEnvYAML: {error}") from None


def resources(text: str) -> dict[str, float]:
    """Resources of the entrypoint."""
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, float])
    except msgspec.DecodeError as error:
        raise NotSent(f"spec.entrypointResources is no JSON object of numbers: {error}") from None


def call_name(job: RayJob, call: Call, submitter: Submitter, submitted: bool) -> str:
    """The name of a call about the job of this try.

    When a submission or a submitter has ended, Ray is asked under another name: an answer from before would say that
    it does not know the job.
    """
    this_try = f"{call.name} {job.status.ray_cluster_name} {job.status.job_id}"
    if call is not Call.FOLLOW:
        return this_try
    stage = "submitted" if submitted else "submitter ended" if submitter.ended else "begun"
    return f"{this_try} {stage}"
