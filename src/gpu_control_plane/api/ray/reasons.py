"""Reasons in conditions of objects of Ray: KubeRay's words, which dashboards and scripts know."""

from gpu_control_plane.kube.fields import OpenEnum


class ClusterReason(OpenEnum):
    """Reasons in the conditions of a RayCluster. Beside these, HeadPodReady has reasons of the pod itself."""

    HEAD_POD_NOT_FOUND = "HeadPodNotFound", "HeadPodReady: there is no pod of the head."
    HEAD_POD_RUNNING_AND_READY = "HeadPodRunningAndReady", "HeadPodReady: it runs and is ready."
    UNKNOWN = "Unknown", "HeadPodReady: the pod says nothing."
    ALL_PODS_READY = "AllPodRunningAndReadyFirstTime", "RayClusterProvisioned: all pods have been up at once."
    PROVISIONING = "RayClusterPodsProvisioning", "RayClusterProvisioned: pods are still to come up."
    FAILED_DELETE_HEAD_POD = "FailedDeleteHeadPod", "ReplicaFailure: the head's pod could not be deleted."
    FAILED_CREATE_HEAD_POD = "FailedCreateHeadPod", "ReplicaFailure: the head's pod could not be made."
    FAILED_DELETE_WORKER_POD = "FailedDeleteWorkerPod", "ReplicaFailure: a worker could not be deleted."
    FAILED_CREATE_WORKER_POD = "FailedCreateWorkerPod", "ReplicaFailure: a worker could not be made."
    SUSPENDING = "RayClusterSuspending", "RayClusterSuspending: pods are being deleted."
    SUSPENDED = "RayClusterSuspended", "RayClusterSuspended: there are no pods."
    VALID = "Valid", "Valid: the spec can be carried out. Ours."
    WORKERS_SUSPENDED = "Suspended", "WorkersReady: there are to be none. Ours."
    WORKERS_WAITING = "WorkersWaiting", "WorkersReady: pods cannot be made, or wait for cards. Ours."
    ALL_WORKERS_READY = "AllWorkersReady", "WorkersReady: as many as are asked for. Ours."
    MORE_WORKERS = "MoreWorkersThanAskedFor", "WorkersReady: surplus ones are yet to go. Ours."
    WORKERS_NOT_READY = "WorkersNotReady", "WorkersReady: some are yet to come up. Ours."
    SERVED = "PoolsCouldServe", "CapacitySufficient: they have cards enough. Ours."
    UNSERVED = "PoolsCannotServe", "CapacitySufficient: they have too few cards, also if all were free. Ours."
    OTHER_OPERATOR = "KubeRayActive", "OtherOperatorActive: KubeRay's operator runs. Ours."
    INVALID_METADATA = "InvalidRayClusterMetadata", "Valid: the name is one that cannot be used."
    INVALID_SPEC = "InvalidRayClusterSpec", "Valid: the spec cannot be carried out."


class ServiceReason(OpenEnum):
    """Reasons in the conditions of a RayService."""

    INITIALIZING = "Initializing", "it comes up for the first time, or again."
    NON_ZERO_ENDPOINTS = "NonZeroServeEndpoints", "pods answer requests."
    ZERO_ENDPOINTS = "ZeroServeEndpoints", "no pod answers any more."
    INITIALIZING_TIMEOUT = "InitializingTimeout", "it did not come up in time, and its clusters are gone."
    VALIDATION_FAILED = "ValidationFailed", "the spec cannot be carried out."
    BOTH_CLUSTERS = "BothActivePendingClustersExist", "a second cluster is to take over."
    NO_PENDING = "NoPendingCluster", "there is one cluster."
    NO_ACTIVE = "NoActiveCluster", "no cluster answers yet."
    SPEC_CHANGED = "DesiredClusterSpecChanged", "the spec has changed in the middle of an upgrade."
    NO_ROLLBACK = "NoRollback", "no upgrade is being undone. Ours."
    SUSPEND_REQUESTED = "SuspendRequested", "the spec asks for it."
    SUSPENDING = "SuspendInProgress", "its clusters are being deleted."
    SUSPENDED = "SuspendComplete", "all is gone."
    RESUMED = "RayServiceResumed", "the spec asks for it no more."
    UP_TO_DATE = "UpToDate", "the cluster that answers was made from the spec. Ours."
    UPGRADING = "UpgradeInProgress", "a cluster made from the spec is to take over. Ours."
    CONFIG_NOT_ACCEPTED = (
        "ServeConfigNotAccepted",
        "Ray Serve has refused, or not answered to, its configuration. Ours.",
    )
    NOT_WRITTEN = "ServiceNotWritten", "a Service cannot be written, and what follows from it waits. Ours."
    NOT_CARRIED_OUT = "ChangeNotCarriedOut", "the spec has changed, and no upgrade is to follow. Ours."
    OTHER_OPERATOR = "OtherOperatorActive", "KubeRay's operator runs. Ours."
