"""What can be seen of a submitter and a head. Pure."""

from collections.abc import Iterable

from gpu_control_plane.api.pod import Terminated
from gpu_control_plane.api.ray.job import RayJob, SubmissionMode
from gpu_control_plane.ray.job.manifests import SUBMITTER
from gpu_control_plane.ray.job.snapshot import Submitter
from gpu_control_plane.ray.owned import OwnedJob, RayPod


def living_head(pods: Iterable[RayPod]) -> RayPod | None:
    """The head of a cluster that has not ended."""
    return next((pod for pod in pods if pod.is_head and not pod.ended), None)


def submitter_of(job: RayJob, held: OwnedJob | None, head: RayPod | None) -> Submitter:
    """How what submits the job stands: a Job of Kubernetes, a container of the head, or none."""
    match job.spec.submission_mode:
        case SubmissionMode.K8S_JOB:
            return _of_job(held)
        case SubmissionMode.SIDECAR:
            return _of_container(head)
        case _:
            return Submitter.NONE


def _of_job(held: OwnedJob | None) -> Submitter:
    if held is None:
        return Submitter.MISSING
    if held.succeeded:
        return Submitter.SUCCEEDED
    return Submitter.FAILED if held.failed else Submitter.ACTIVE


def _of_container(head: RayPod | None) -> Submitter:
    ended = _terminated(head) if head is not None else None
    if ended is None:
        return Submitter.ACTIVE
    return Submitter.SUCCEEDED if ended.exit_code == 0 else Submitter.FAILED


def _terminated(head: RayPod) -> Terminated | None:
    return next((held.state.terminated for held in head.status.container_statuses if held.name == SUBMITTER), None)
