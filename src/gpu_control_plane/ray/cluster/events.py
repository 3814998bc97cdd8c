"""Events of a RayCluster. The words are KubeRay's where it has one, so that what looks for them finds them."""

from enum import StrEnum


class ClusterEvent(StrEnum):
    """Reasons of Events."""

    CREATED_HEAD = "CreatedHeadPod"
    CREATED_WORKERS = "CreatedWorkerPod"
    DELETED_HEAD = "DeletedHeadPod"
    DELETED_WORKERS = "DeletedWorkerPod"
    FAILED_CREATE_HEAD = "FailedToCreateHeadPod"
    FAILED_CREATE_WORKERS = "FailedToCreateWorkerPod"
    FAILED_DELETE_HEAD = "FailedToDeleteHeadPod"
    FAILED_DELETE_WORKERS = "FailedToDeleteWorkerPod"
    CREATED_CLEANUP = "CreatedRedisCleanupJob"
    FAILED_CREATE_CLEANUP = "FailedToCreateRedisCleanupJob"
    FORCED = "ForceDeletedStuckCluster"
    IGNORED_PARAMETER = "RayStartParamIgnored"
    SUSPENDED_IDLE = "SuspendedIdleCluster"
    WAITING = "WorkersWaitForCards"
    RELEASED = "WorkersReleased"
    CAPACITY = "CapacityInsufficient"
    CLAIM_DIFFERS = "PVCDiffers"


def created(kind: str) -> str:
    """The reason of an Event about an object beside the pods: CreatedService."""
    return f"Created{_SHORT.get(kind, kind)}"


def updated(kind: str) -> str:
    return f"Updated{_SHORT.get(kind, kind)}"


def failed_to_create(kind: str) -> str:
    return f"FailedToCreate{_SHORT.get(kind, kind)}"


_SHORT = {"PersistentVolumeClaim": "PVC"}
