"""What Ray's dashboard is told and says, as far as it is used. Ray adds fields with every version: others are passed
over."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gpu_control_plane.api.ray.job import JobStatus

MESSAGE_LIMIT: Final = 2048
"""Characters that are kept of a message, which ends in the status of an object."""


_STATUS_LIMIT: Final = 64


class JobSubmission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as it is submitted."""

    entrypoint: str
    submission_id: str
    runtime_env: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    entrypoint_num_cpus: float = 0.0
    entrypoint_num_gpus: float = 0.0
    entrypoint_resources: dict[str, float] = {}


class JobDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What Ray says of a job."""

    status: JobStatus
    message: str = ""
    start_time: datetime | None = None
    end_time: datetime | None = None
    driver_exit_code: int | None = None


class JobOnWire(msgspec.Struct, frozen=True):
    """The same as Ray writes it: null for what is not known, and milliseconds."""

    status: str
    message: str | None = None
    start_time: float | None = None
    end_time: float | None = None
    driver_exit_code: int | None = None

    def details(self) -> JobDetails:
        return JobDetails(
            status=JobStatus(self.status[:_STATUS_LIMIT]),
            message=shortened(self.message or ""),
            start_time=moment((self.start_time or 0) / 1000),
            end_time=moment((self.end_time or 0) / 1000),
            driver_exit_code=self.driver_exit_code,
        )


class SubmittedOnWire(msgspec.Struct, frozen=True):
    submission_id: str = ""
    job_id: str = ""


class StoppedOnWire(msgspec.Struct, frozen=True):
    stopped: bool = False


class ServeReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica of a deployment."""

    state: str = ""


class ServeDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment of an application of Ray Serve."""

    status: str = ""
    message: str | None = None
    replicas: tuple[ServeReplica, ...] = ()

    @property
    def answers(self) -> bool:
        """Whether it has all that it should have, or at least one replica that runs."""
        return self.status == "HEALTHY" or any(replica.state == "RUNNING" for replica in self.replicas)


class ServeApplication(msgspec.Struct, frozen=True, kw_only=True):
    """An application of Ray Serve."""

    status: str = ""
    message: str | None = None
    deployments: dict[str, ServeDeployment] = {}
    deployed_app_config: dict[str, Any] | None = None
    """What it was last told to be."""

    @property
    def running(self) -> bool:
        return self.status == "RUNNING"

    @property
    def failing(self) -> bool:
        """Whether more nodes would not make it run."""
        return self.status in ("DEPLOY_FAILED", "UNHEALTHY")


class ServeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What Ray Serve says of itself; empty while it has not been started."""

    applications: dict[str, ServeApplication] = {}
    target_capacity: float | None = None
    proxy_location: str | None = None
    http_options: dict[str, Any] | None = None


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a cluster of Ray has work, and since when it has none."""

    active: bool
    reason: str = ""
    last_activity: datetime | None = None


class ComponentOnWire(msgspec.Struct, frozen=True):
    is_active: str
    reason: str | None = None
    last_activity_at: float | None = None


def shortened(text: str) -> str:
    """The end of a long text: that of a traceback says what happened."""
    return text if len(text) <= MESSAGE_LIMIT else f"…{text[-MESSAGE_LIMIT + 1 :]}"


def moment(seconds: float | None) -> datetime | None:
    """A time as Ray writes it; None for none, and for nonsense."""
    if not seconds or seconds < 0:
        return None
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (OverflowError, ValueError, OSError):
        return None
