"""Events of a RayService. The words are KubeRay's where it has one, so that what looks for them finds them."""

from enum import StrEnum
from typing import Final


class ServiceEvent(StrEnum):
    """Reasons of Events."""

    INVALID = "InvalidRayServiceSpec"
    CREATED_CLUSTER = "CreatedRayCluster"
    UPDATED_CLUSTER = "UpdatedRayCluster"
    DELETED_CLUSTER = "DeletedRayCluster"
    TOOK_OVER_CLUSTER = "TookOverRayCluster"
    CREATED_SERVICE = "CreatedService"
    UPDATED_SERVICE = "UpdatedService"
    UPDATED_HEAD_LABEL = "UpdatedHeadPodServeLabel"
    UPDATED_APPLICATIONS = "UpdatedServeApplications"
    FAILED_UPDATE_APPLICATIONS = "FailedToUpdateServeApplications"
    UPGRADE_STARTED = "UpgradeStarted"
    UPGRADE_COMPLETE = "UpgradeComplete"
    UPGRADE_BY_HANDOVER = "UpgradeByHandover"
    UPGRADE_WITH_GAP = "UpgradeWithGap"
    UPGRADE_WAITS = "UpgradeWaits"
    HANDING_OVER = "HandingOverWorker"
    ROLLBACK_STARTED = "RollbackStarted"
    ROLLBACK_COMPLETE = "RollbackComplete"
    NOT_CARRIED_OUT = "ChangeNotCarriedOut"
    TIMED_OUT = "InitializingTimeout"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"


HEAD_LABEL: Final = "HeadPodServeLabel"
"""The label by which requests go to a head, in KubeRay's words."""


def failed_to(verb: str, what: str) -> str:
    """The reason of an Event about what could not be written, by its kind: FailedToCreateService."""
    return f"FailedTo{verb}{what}"
