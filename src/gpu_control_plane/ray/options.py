"""How the operator of Ray works, by the switches that KubeRay's operator has: from the chart and the environment."""

import enum
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpu_control_plane import __version__

OWN_VERSIONS: Final = "gpu-control-plane-"
"""What the version of every release of this operator begins with."""
OPERATOR_VERSION: Final = f"{OWN_VERSIONS}{__version__}"
"""What `ray.io/kuberay-version` says of objects of this operator."""


class BatchScheduler(enum.StrEnum):
    """What schedules the pods of a cluster together."""

    NONE = ""
    VOLCANO = "volcano"
    YUNIKORN = "yunikorn"
    SCHEDULER_PLUGINS = "scheduler-plugins"
    KAI = "kai-scheduler"


class RayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Switches of the operator. Their defaults are KubeRay's."""

    watch_namespaces: tuple[str, ...] = ()
    """Where objects of Ray are looked after; everywhere if empty."""
    cluster_domain: str = "cluster.local"
    batch_scheduler: BatchScheduler = BatchScheduler.NONE
    gang: bool = True
    """Whether the workers of a group that need cards of pools start together. A batch scheduler sees to it itself."""
    use_kubernetes_proxy: bool = False
    """Whether Ray's dashboards are reached through the API server instead of by DNS."""
    init_container: bool = True
    """Whether workers wait for the head in an init container."""
    probes: bool = True
    redis_cleanup: bool = True
    zero_downtime: bool = True
    """Whether a RayService without an upgrade strategy gets a second cluster when its spec changes."""
    head_cluster_ip_service: bool = False
    """Whether the head's Service has an address of its own."""
    random_pod_delete: bool = False
    """Whether surplus workers of an autoscaling cluster are deleted although Ray's autoscaler has named none."""
    login_shell: bool = False
    deterministic_head_name: bool = False
    delete_job_after_finish: bool = False
    """Whether a RayJob goes as a whole where its spec asks for its cluster to go."""
    ingress_on_openshift: bool = False
    openshift: bool = False
    """Whether the cluster has Routes, which take the place of Ingresses."""
    default_container_envs: tuple[Mapping[str, Any], ...] = ()
    default_pod_annotations: Mapping[str, str] = {}
    default_pod_labels: Mapping[str, str] = {}
    head_sidecars: tuple[Mapping[str, Any], ...] = ()
    worker_sidecars: tuple[Mapping[str, Any], ...] = ()
    version: str = OPERATOR_VERSION
