"""What a decision about a RayJob is made from, and what it says. Plain data."""

import enum
from datetime import datetime, timedelta

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.job import RayJob, RayJobStatus
from gpu_control_plane.ray.dashboard.calls import Answer
from gpu_control_plane.ray.dashboard.models import JobDetails
from gpu_control_plane.ray.event_record import EventRecord


class Submitter(enum.Enum):
    """How what submits the job stands."""

    NONE = "the operator or a person submits"
    MISSING = "it is not there"
    ACTIVE = "it has not ended"
    SUCCEEDED = "it has succeeded"
    FAILED = "it has failed"

    @property
    def ended(self) -> bool:
        """Whether nothing will be submitted, or followed, by it any more."""
        return self in {Submitter.MISSING, Submitter.SUCCEEDED, Submitter.FAILED}


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """How long the operator waits before it concludes something from silence."""

    status_check: timedelta = timedelta(minutes=5)
    """How long Ray's dashboard may not answer."""
    end_grace: timedelta = timedelta(minutes=5)
    """How long a submitter may go on after the end of its job."""
    submitter_grace: timedelta = timedelta(seconds=30)
    """How long Ray may not answer when the submitter has ended."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A RayJob, and everything that its next step depends on."""

    job: RayJob
    now: datetime
    suffix: str
    """Five new characters, for names that do not exist yet."""
    cluster: RayCluster | None = None
    """The cluster that the status names: made for this job, or selected."""
    own_clusters: tuple[RayCluster, ...] = ()
    """Every cluster that was made for this job and is there."""
    submitter: Submitter = Submitter.NONE
    job_object: bool = False
    """Whether the Job of Kubernetes is there."""
    head: bool = True
    """Whether the cluster has a head that has not ended."""
    dashboard_url: str = ""
    """Without `http://`, as the status shows it; empty while there is no cluster."""
    ray: Answer[JobDetails | None] | None = None
    """What Ray says of the job."""
    submitted: Answer[str] | None = None
    """How the operator's own submission went."""
    stopped: Answer[bool] | None = None
    """How telling Ray to stop the job went."""
    problems: tuple[str, ...] = ()
    """Why the spec cannot be carried out."""
    deletes_self: bool = False
    """Whether a RayJob goes as a whole where its spec asks for its cluster to go."""
    timings: Timings = Timings()


class Step(enum.Enum):
    """What is written, in the order of a decision. Each can be repeated."""

    ADD_FINALIZER = "make the deletion wait"
    WRITE_STATUS = "write the status"
    MAKE_CLUSTER = "make the RayCluster that the status names"
    MAKE_SUBMITTER = "make the Job that submits"
    MAKE_SERVICE = "make the Service of the head, or point it to the cluster"
    MAKE_GROUP = "make what a batch scheduler needs"
    SUSPEND_WORKERS = "suspend the workers of the cluster"
    DELETE_CLUSTERS = "delete the clusters made for this job"
    DELETE_SUBMITTER = "delete the Job that submits"
    DELETE_SELF = "delete the RayJob"
    REMOVE_FINALIZER = "let the deletion go on"


class Call(enum.Enum):
    """What Ray is asked in the background."""

    FOLLOW = "how the job stands"
    SUBMIT = "to run it"
    STOP = "to stop it"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What now."""

    status: RayJobStatus
    steps: tuple[Step, ...] = ()
    calls: frozenset[Call] = frozenset()
    """What is asked until the next decision. Other calls end."""
    events: tuple[EventRecord, ...] = ()
    """Recorded once the steps have been carried out."""
    again_in: timedelta | None = None
    """When to look again, whatever happens."""
