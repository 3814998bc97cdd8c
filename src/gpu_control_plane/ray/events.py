"""Reasons and actions of Events about objects of Ray. The reasons are those of KubeRay, which alerts and tools of its
users know; what KubeRay has no word for has one of ours at the end.
"""

import enum

from gpu_control_plane.kube.fields import OpenEnum


class RayAction(enum.StrEnum):
    """What was being done."""

    CREATE = "Create"
    DELETE = "Delete"
    UPDATE = "Update"
    VALIDATE = "Validate"
    RECONCILE = "Reconcile"
    CLEANUP = "Cleanup"
    SUSPEND = "Suspend"


class RayEvent(OpenEnum):
    """Reasons of Events."""

    INVALID_CLUSTER_METADATA = "InvalidRayClusterMetadata", "The name of a RayCluster cannot be used."
    INVALID_CLUSTER_SPEC = "InvalidRayClusterSpec", "The spec of a RayCluster cannot be carried out."
    INVALID_CLUSTER_STATUS = "InvalidRayClusterStatus", "The conditions of a RayCluster contradict each other."
    INVALID_JOB_METADATA = "InvalidRayJobMetadata", "The name of a RayJob cannot be used."
    INVALID_JOB_SPEC = "InvalidRayJobSpec", "The spec of a RayJob cannot be carried out."
    INVALID_JOB_STATUS = "InvalidRayJobStatus", "The status of a RayJob does not fit its spec."
    INVALID_SERVICE_METADATA = "InvalidRayServiceMetadata", "The name of a RayService cannot be used."
    INVALID_SERVICE_SPEC = "InvalidRayServiceSpec", "The spec of a RayService cannot be carried out."

    CREATED_HEAD_POD = "CreatedHeadPod", "The pod of a head was made."
    FAILED_TO_CREATE_HEAD_POD = "FailedToCreateHeadPod", "The pod of a head could not be made."
    DELETED_HEAD_POD = "DeletedHeadPod", "The pod of a head was deleted; the note says why."
    FAILED_TO_DELETE_HEAD_POD = "FailedToDeleteHeadPod", "The pod of a head could not be deleted."
    CREATED_WORKER_POD = "CreatedWorkerPod", "The pod of a worker was made."
    FAILED_TO_CREATE_WORKER_POD = "FailedToCreateWorkerPod", "The pod of a worker could not be made."
    DELETED_WORKER_POD = "DeletedWorkerPod", "The pod of a worker was deleted; the note says why."
    FAILED_TO_DELETE_WORKER_POD = "FailedToDeleteWorkerPod", "The pod of a worker could not be deleted."
    FAILED_TO_DELETE_WORKER_PODS = (
        "FailedToDeleteWorkerPodCollection",
        "The pods of a worker group could not be deleted.",
    )
    DELETED_POD = "DeletedPod", "All pods of a cluster, or one of them, were deleted; the note says why."
    FAILED_TO_DELETE_POD = "FailedToDeletePod", "A pod could not be deleted."
    FAILED_TO_DELETE_PODS = "FailedToDeletePodCollection", "The pods of a cluster could not be deleted."

    CREATED_CLUSTER = "CreatedRayCluster", "A RayJob or RayService has made its RayCluster."
    FAILED_TO_CREATE_CLUSTER = "FailedToCreateRayCluster", "The RayCluster of a RayJob or RayService was not made."
    UPDATED_CLUSTER = "UpdatedRayCluster", "The RayCluster of a RayJob or RayService was changed."
    FAILED_TO_UPDATE_CLUSTER = "FailedToUpdateRayCluster", "The RayCluster of a RayJob or RayService was not changed."
    DELETED_CLUSTER = "DeletedRayCluster", "The RayCluster of a RayJob or RayService was deleted; the note says why."
    FAILED_TO_DELETE_CLUSTER = "FailedToDeleteRayCluster", "The RayCluster of a RayJob or RayService was not deleted."
    CREATED_SUBMITTER = "CreatedRayJobSubmitter", "The Job that submits a RayJob was made."
    FAILED_TO_CREATE_SUBMITTER = "FailedToCreateRayJobSubmitter", "The Job that submits a RayJob could not be made."
    DELETED_SUBMITTER = "DeletedRayJobSubmitter", "The Job that submits a RayJob was deleted."
    FAILED_TO_DELETE_SUBMITTER = "FailedToDeleteRayJobSubmitter", "The Job that submits a RayJob was not deleted."

    CREATED_SERVICE = "CreatedService", "A Service was made."
    FAILED_TO_CREATE_SERVICE = "FailedToCreateService", "A Service could not be made."
    UPDATED_SERVICE = "UpdatedService", "A Service was changed."
    FAILED_TO_UPDATE_SERVICE = "FailedToUpdateService", "A Service could not be changed."
    CREATED_SERVICE_ACCOUNT = "CreatedServiceAccount", "The ServiceAccount of the autoscaler was made."
    FAILED_TO_CREATE_SERVICE_ACCOUNT = (
        "FailedToCreateServiceAccount",
        "The ServiceAccount of the autoscaler could not be made.",
    )
    AUTOSCALER_SERVICE_ACCOUNT_NOT_FOUND = (
        "AutoscalerServiceAccountNotFound",
        "The ServiceAccount that the template of the head names is not there.",
    )
    CREATED_ROLE = "CreatedRole", "The Role of the autoscaler was made."
    FAILED_TO_CREATE_ROLE = "FailedToCreateRole", "The Role of the autoscaler could not be made."
    CREATED_ROLE_BINDING = "CreatedRoleBinding", "The RoleBinding of the autoscaler was made."
    FAILED_TO_CREATE_ROLE_BINDING = (
        "FailedToCreateRoleBinding",
        "The RoleBinding of the autoscaler could not be made.",
    )
    CREATED_INGRESS = "CreatedIngress", "The Ingress or Route of a dashboard was made."
    FAILED_TO_CREATE_INGRESS = "FailedToCreateIngress", "The Ingress or Route of a dashboard could not be made."
    UPDATED_INGRESS = "UpdatedIngress", "The Ingress or Route of a dashboard was changed."
    FAILED_TO_UPDATE_INGRESS = "FailedToUpdateIngress", "The Ingress or Route of a dashboard could not be changed."
    CREATED_CLAIM = "CreatedPVC", "The volume claim of the GCS was made."
    FAILED_TO_CREATE_CLAIM = "FailedToCreatePVC", "The volume claim of the GCS could not be made."
    CREATED_REDIS_CLEANUP = "CreatedRedisCleanupJob", "The Job that removes the keys of a cluster from Redis was made."
    FAILED_TO_CREATE_REDIS_CLEANUP = (
        "FailedToCreateRedisCleanupJob",
        "The Job that removes the keys of a cluster from Redis could not be made.",
    )
    FORCE_DELETED_STUCK_CLUSTER = (
        "ForceDeletedStuckCluster",
        "A RayCluster went without its keys in Redis being removed: that took too long.",
    )
    UPDATED_HEAD_SERVE_LABEL = "UpdatedHeadPodServeLabel", "The head of a RayService serves requests, or no longer."
    FAILED_TO_UPDATE_HEAD_SERVE_LABEL = (
        "FailedToUpdateHeadPodServeLabel",
        "Whether the head of a RayService serves requests could not be written.",
    )
    UPDATED_SERVE_APPLICATIONS = "UpdatedServeApplications", "The configuration of Ray Serve was sent to a cluster."
    FAILED_TO_UPDATE_SERVE_APPLICATIONS = (
        "FailedToUpdateServeApplications",
        "The configuration of Ray Serve could not be sent to a cluster.",
    )

    INVALID_CRON_JOB_SPEC = "InvalidRayCronJobSpec", "The spec of a RayCronJob cannot be carried out. Ours."
    CREATED_JOB = "CreatedRayJob", "A RayCronJob has made a RayJob. Ours."
    FAILED_TO_CREATE_JOB = "FailedToCreateRayJob", "A RayCronJob could not make a RayJob. Ours."
    DELETED_JOB = "DeletedRayJob", "A RayCronJob has deleted a RayJob; the note says why. Ours."
    FAILED_TO_DELETE_JOB = "FailedToDeleteRayJob", "A RayCronJob could not delete a RayJob. Ours."
    MISSED_SCHEDULE = "MissedSchedule", "A RayCronJob left out a time; the note says why. Ours."
    CREATED_OBJECT = "CreatedObject", "Another object of a cluster was made, such as a NetworkPolicy. Ours."
    UPDATED_OBJECT = "UpdatedObject", "Another object of a cluster was changed. Ours."
    FAILED_TO_WRITE_OBJECT = "FailedToWriteObject", "Another object of a cluster could not be written. Ours."
    PARAMETER_IGNORED = "RayStartParamIgnored", "A parameter of `ray start` has no effect; the note says why. Ours."
    CLAIM_DIFFERS = "PVCDiffers", "The volume of a RayCluster is not as its spec says, and stays as it is. Ours."
    NAME_TAKEN = "NameTaken", "An object of the name that is needed belongs to something else. Ours."
    OTHER_OPERATOR_ACTIVE = "OtherOperatorActive", "KubeRay's operator is in charge. Ours."
    TAKEN_OVER = "TakenOver", "This operator is in charge now. Ours."
    CAPACITY_INSUFFICIENT = (
        "CapacityInsufficient",
        "The pool of a worker group could not serve it if all its cards were free. Ours.",
    )
    SUSPENDED_WHEN_IDLE = (
        "SuspendedIdleCluster",
        "A RayCluster had no work for as long as it may, and is suspended. Ours.",
    )
    ROLLING_CHANGE = "RollingChange", "Workers are being replaced by such as the spec now says. Ours."
    WORKERS_WAIT_TOGETHER = (
        "WorkersWaitForCards",
        "Workers of a group wait until there are cards for all that start together. Ours.",
    )
    WORKERS_RELEASED = "WorkersReleased", "There are cards for the workers of a group, and they may start. Ours."
    WORKERS_WAIT = "RayWorkersWait", "Workers of a group have waited for cards for long; the note says why. Ours."
    JOB_WAITS = "RayJobWaits", "A RayJob has waited for long, and does not run yet; the note says why. Ours."
    SERVICE_NOT_READY = (
        "RayServiceNotReady",
        "A RayService has not answered requests for long; the note says why. Ours.",
    )
