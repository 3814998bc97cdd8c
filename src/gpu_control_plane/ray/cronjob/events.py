"""Events of a RayCronJob."""

from enum import StrEnum


class CronJobEvent(StrEnum):
    """Reasons of Events."""

    INVALID = "InvalidRayCronJobSpec"
    CREATED = "CreatedRayJob"
    FAILED_CREATE = "FailedToCreateRayJob"
    DELETED = "DeletedRayJob"
    MISSED = "MissedSchedule"
    STILL_ACTIVE = "RayJobAlreadyActive"
