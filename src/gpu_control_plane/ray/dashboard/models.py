"""What Ray's dashboard is told and says, as far as it is used. Ray adds fields with every version: others are passed
over. What is kept of an answer takes little memory, whatever the answer was: read as objects, JSON becomes many times
as large, and a dashboard belongs to a user of the cluster."""

import sys
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
    """That the job was taken. It names the ID, which is known."""


class StoppedOnWire(msgspec.Struct, frozen=True):
    stopped: bool = False


class ServeDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment of an application of Ray Serve."""

    status: str = ""
    message: str = ""
    replica_runs: bool = False
    """Whether at least one of its replicas does."""

    @property
    def answers(self) -> bool:
        """Whether it has all that it should have, or at least one replica that runs."""
        return self.status == "HEALTHY" or self.replica_runs


class ServeApplication(msgspec.Struct, frozen=True, kw_only=True):
    """An application of Ray Serve."""

    status: str = ""
    message: str = ""
    deployments: dict[str, ServeDeployment] = {}
    deployed_app_config: msgspec.Raw | None = None
    """What it was last told to be, in JSON: it is told again, and nothing in it is read."""

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
    http_options: msgspec.Raw | None = None

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        beside = sys.getsizeof(self.proxy_location) + len(self.http_options or b"")
        return beside + sum(_size_of(name, each) for name, each in self.applications.items())


class ReplicaOnWire(msgspec.Struct, frozen=True):
    state: str = ""


class DeploymentOnWire(msgspec.Struct, frozen=True):
    status: str = ""
    message: str | None = None
    replicas: tuple[ReplicaOnWire, ...] = ()

    def deployment(self) -> ServeDeployment:
        return ServeDeployment(
            status=self.status[:_STATUS_LIMIT],
            message=shortened(self.message or ""),
            replica_runs=any(replica.state == "RUNNING" for replica in self.replicas),
        )


class ApplicationOnWire(msgspec.Struct, frozen=True):
    status: str = ""
    message: str | None = None
    deployments: dict[str, DeploymentOnWire] = {}
    deployed_app_config: msgspec.Raw = msgspec.Raw()

    def application(self) -> ServeApplication:
        return ServeApplication(
            status=self.status[:_STATUS_LIMIT],
            message=shortened(self.message or ""),
            deployments={name: each.deployment() for name, each in self.deployments.items()},
            deployed_app_config=_copied(self.deployed_app_config),
        )


class ServeOnWire(msgspec.Struct, frozen=True):
    """The same as Ray writes it, with every replica."""

    applications: dict[str, ApplicationOnWire] = {}
    target_capacity: float | None = None
    proxy_location: str | None = None
    http_options: msgspec.Raw = msgspec.Raw()

    @property
    def parts(self) -> int:
        """How many applications and deployments there are."""
        return len(self.applications) + sum(len(each.deployments) for each in self.applications.values())

    def details(self) -> ServeDetails:
        return ServeDetails(
            applications={name: each.application() for name, each in self.applications.items()},
            target_capacity=self.target_capacity,
            proxy_location=self.proxy_location[:_STATUS_LIMIT] if self.proxy_location is not None else None,
            http_options=_copied(self.http_options),
        )


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a cluster of Ray has work, and since when it has none."""

    active: bool
    reason: str = ""
    last_activity: datetime | None = None


class ComponentOnWire(msgspec.Struct, frozen=True):
    is_active: str
    reason: str | None = None
    last_activity_at: float | None = None


_STRUCT_SIZE: Final = 400
"""Bytes of an application or a deployment without its texts, and of its place in the map."""


def _size_of(name: str, held: ServeApplication | ServeDeployment) -> int:
    own = _STRUCT_SIZE + sum(map(sys.getsizeof, (name, held.status, held.message)))
    if isinstance(held, ServeDeployment):
        return own
    return own + len(held.deployed_app_config or b"") + sum(_size_of(*each) for each in held.deployments.items())


def _copied(raw: msgspec.Raw) -> msgspec.Raw | None:
    """A part of an answer, which does not keep the whole of it; None for none."""
    return raw.copy() if bytes(raw) not in (b"", b"null", b"{}") else None


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
