"""Events of a RayJob. The words are KubeRay's where it has one, so that what looks for them finds them."""

from enum import StrEnum


class JobEvent(StrEnum):
    """Reasons of Events."""

    INVALID = "InvalidRayJobSpec"
    CREATED_CLUSTER = "CreatedRayCluster"
    DELETED_CLUSTER = "DeletedRayCluster"
    UPDATED_CLUSTER = "UpdatedRayCluster"
    FAILED_CREATE_CLUSTER = "FailedToCreateRayCluster"
    CREATED_SUBMITTER = "CreatedRayJobSubmitter"
    FAILED_CREATE_SUBMITTER = "FailedToCreateRayJobSubmitter"
    CREATED_SERVICE = "CreatedService"
    FAILED_CREATE_SERVICE = "FailedToCreateService"
    SUBMITTED = "SubmittedRayJob"
    NOT_REACHED = "RayDashboardNotReached"
    LOST = "RayJobLost"
    COMPLETED = "RayJobCompleted"
    FAILED = "RayJobFailed"
    RETRIED = "RayJobRetried"
    SUSPENDED = "RayJobSuspended"
    STOP_FAILED = "RayJobNotStopped"
    DELETED_SELF = "DeletedRayJob"
