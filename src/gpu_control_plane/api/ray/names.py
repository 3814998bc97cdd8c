"""The group `ray.io`, and every label, annotation, condition, state and reason that KubeRay's users and tools know.

The words are KubeRay's, so that what reads its objects reads ours. Words of our own are under `gpu.deckhouse.io/`.
"""

from typing import Final

from gpu_control_plane.api.names import GROUP as OWN_GROUP
from gpu_control_plane.kube.fields import OpenEnum

GROUP: Final = "ray.io"
VERSION: Final = "v1"
OLDER_VERSION: Final = "v1alpha1"

LEASE: Final = "ray-operator-leader"
"""The Lease of KubeRay's operator."""

HEAD_GROUP: Final = "headgroup"
"""What the head's pod has as its group."""
CREATED_BY: Final = "kuberay-operator"
"""The value of `app.kubernetes.io/created-by`, by which Ray's autoscaler and users' selectors find pods."""
MANAGED_BY_US: Final = "ray.io/kuberay-operator"
MANAGED_BY_MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"


class Label(OpenEnum):
    """Labels of what belongs to a RayCluster, and those that users put on the objects of Ray."""

    CLUSTER = (
        f"{GROUP}/cluster",
        "The RayCluster that an object belongs to. In a selector of a RayJob: its name.",
    )
    NODE_TYPE = f"{GROUP}/node-type", "head, worker, or redis-cleanup."
    IDENTIFIER = f"{GROUP}/identifier", "Cluster and node type."
    IS_RAY_NODE = f"{GROUP}/is-ray-node", "yes on every pod of a RayCluster."
    SERVE = f"{GROUP}/serve", "true on pods to which requests of a RayService may go; on its Service, the name."
    HEADLESS_SERVICE = f"{GROUP}/headless-worker-svc", "On the headless Service of multi-host workers: the RayCluster."
    ORIGINATED_FROM_NAME = f"{GROUP}/originated-from-cr-name", "The RayJob or RayService that made it."
    ORIGINATED_FROM_KIND = f"{GROUP}/originated-from-crd", "RayCluster, RayJob or RayService."
    JOB_SUBMISSION_MODE = f"{GROUP}/job-submission-mode", "How the job of a RayCluster that a RayJob made is submitted."
    REPLICA_INDEX = f"{GROUP}/worker-group-replica-index", "The index of a replica in its group."
    REPLICA_NAME = f"{GROUP}/worker-group-replica-name", "The replica that a pod of a multi-host group belongs to."
    HOST_INDEX = f"{GROUP}/replica-host-index", "The index of a pod in its multi-host replica."
    APP_NAME = "app.kubernetes.io/name", "kuberay."
    CREATED_BY = "app.kubernetes.io/created-by", "kuberay-operator, also of what this operator makes."
    GANG = (
        f"{GROUP}/gang-scheduling-enabled",
        "On an object of Ray: its pods are scheduled together or not at all. false: workers do not wait.",
    )
    PRIORITY_CLASS = f"{GROUP}/priority-class-name", "On an object of Ray: the priority class of its PodGroup."
    # The last one: below it this name would be the member and no longer the group of the API.
    GROUP = f"{GROUP}/group", "The worker group of a pod; headgroup for the head."


class Annotation(OpenEnum):
    """Annotations of objects of Ray and of their pods."""

    FT_ENABLED = f"{GROUP}/ft-enabled", "On a RayCluster: fault tolerance of the GCS, where the spec says nothing."
    EXTERNAL_STORAGE_NAMESPACE = f"{GROUP}/external-storage-namespace", "Where the GCS keeps its keys in Redis."
    FT_DELETION_TIMEOUT = f"{GROUP}/gcs-ft-deletion-timeout", "Seconds after which a cluster goes without clean-up."
    OVERWRITE_COMMAND = f"{GROUP}/overwrite-container-cmd", "true: the command of the Ray container stays as it is."
    ENABLE_SERVE_SERVICE = f"{GROUP}/enable-serve-service", "true: a RayCluster has a Service for Ray Serve."
    DISABLE_HEAD_RESTART = f"{GROUP}/disable-provisioned-head-restart", "true: a lost head is not made anew."
    INITIALIZING_TIMEOUT = f"{GROUP}/initializing-timeout", "On a RayService: how long it may take to come up."
    RECREATE_HASH = f"{GROUP}/upgrade-strategy-recreate-hash", "On a head: the spec that it was made from."
    KUBERAY_VERSION = f"{GROUP}/kuberay-version", "The operator that made or took over the object."
    SPEC_HASH = f"{GROUP}/hash-without-replicas-and-workers-to-delete", "The spec that a RayCluster was made from."
    NUM_WORKER_GROUPS = f"{GROUP}/num-worker-groups", "How many worker groups that spec has."
    TEMPLATE_HASH = f"{OWN_GROUP}/template-hash", "On a pod of Ray: the template and settings that it was made from."
    IDLE_TIMEOUT = (
        f"{OWN_GROUP}/idle-timeout",
        "On a RayCluster: suspend it after so long without work, such as 90s, 5m or 1h30m.",
    )
    IN_PLACE_UPGRADE = (
        f"{OWN_GROUP}/in-place-upgrade",
        "On a RayService: when an upgrade hands workers over one by one: auto (the pool is full), always or never.",
    )
    SERVE_CONFIG = f"{OWN_GROUP}/serve-config", "On a RayCluster: what Ray Serve was last told, as a hash, and when."
    UNUSED_SINCE = f"{OWN_GROUP}/unused-since", "On a RayCluster of a RayService: since when requests go elsewhere."
    APPLIED_SCALE = f"{OWN_GROUP}/applied-scale", "On a RayCluster: numbers of workers of its RayService, as a hash."
    FILLED_GPUS = (
        f"{OWN_GROUP}/filled-num-gpus",
        "On a RayCluster: the num-gpus in rayStartParams that were filled in for Ray's autoscaler, by group.",
    )
    HANDOVER = f"{OWN_GROUP}/handover", "On a RayCluster that takes workers over: how many GPUs there are for both."


class Finalizer(OpenEnum):
    """Finalizers."""

    REDIS_CLEANUP = f"{GROUP}/gcs-ft-redis-cleanup-finalizer", "Keeps a RayCluster until its keys in Redis are gone."
    JOB = f"{GROUP}/rayjob-finalizer", "Keeps a RayJob until its job in Ray has been told to stop."
    SERVICE = (
        f"{GROUP}/rayservice-finalizer",
        "KubeRay's, on a RayService. This operator takes it off a RayService that goes, and adds none.",
    )


class NodeType(OpenEnum):
    """What a pod of a RayCluster is."""

    HEAD = "head", "it runs the GCS and the dashboard."
    WORKER = "worker", "it runs tasks and actors."
    REDIS_CLEANUP = "redis-cleanup", "it removes the keys of a cluster that has ended from Redis."
