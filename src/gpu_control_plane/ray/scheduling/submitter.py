"""What the submitter of a RayJob asks for: PodGroups count it."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from gpu_control_plane.api.ray.job import RayJob, SubmissionMode
from gpu_control_plane.ray.demand import Amounts, pod_amounts

SUBMITTER_GROUP: Final = "submittergroup"
"""The group of the pod that submits a job."""

_DEFAULT: Final[Amounts] = {"cpu": Decimal("0.5"), "memory": Decimal(200 * 1024**2)}
"""What the submitter's container requests where nobody says otherwise."""


def submitter_template(job: RayJob) -> Mapping[str, Any]:
    """The template of the submitter's pod; empty where there is none."""
    return job.spec.submitter_pod_template or {}


def submitter_amounts(job: RayJob) -> Amounts:
    """What the submitter asks for beside the cluster: as a pod of its own, or as a container of the head's."""
    match job.spec.submission_mode:
        case SubmissionMode.K8S_JOB if job.spec.submitter_pod_template is not None:
            return pod_amounts(job.spec.submitter_pod_template.get("spec") or {})
        case SubmissionMode.K8S_JOB | SubmissionMode.SIDECAR:
            return dict(_DEFAULT)
        case _:
            return {}
