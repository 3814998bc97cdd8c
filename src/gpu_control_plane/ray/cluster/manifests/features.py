"""What the spec of a RayCluster switches on, as far as several of its objects depend on it."""

import enum

from gpu_control_plane.api.ray.cluster import AuthMode, AutoscalerVersion, RayCluster, RayClusterSpec
from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.rules.ray.autoscaling import asks_for_v2_by_variable
from gpu_control_plane.rules.ray.fault_tolerance import ROCKSDB


class GcsBackend(enum.Enum):
    """Where the GCS stores its state beyond the life of the head. The hash of a pod's template holds these names."""

    NOWHERE = enum.auto()
    REDIS = enum.auto()
    """In the Redis of the spec."""
    REDIS_OF_USER = enum.auto()
    """In a Redis that the head's own environment names: the older way, by an annotation."""
    ROCKSDB = enum.auto()
    """On a volume of the head."""


def autoscaler_version(spec: RayClusterSpec) -> AutoscalerVersion | None:
    """The version that the spec names, by its field or by the head's variable; None without autoscaling, or where Ray
    chooses."""
    if not spec.autoscales:
        return None
    options = spec.autoscaler_options
    if options is not None and options.version is not None:
        return options.version
    return AutoscalerVersion.V2 if asks_for_v2_by_variable(spec) else None


def gcs_backend(cluster: RayCluster) -> GcsBackend:
    options = cluster.spec.gcs_fault_tolerance_options
    if options is not None:
        return GcsBackend.ROCKSDB if options.backend == ROCKSDB else GcsBackend.REDIS
    by_annotation = cluster.metadata.annotations.get(Annotation.FT_ENABLED.value, "").lower() == "true"
    return GcsBackend.REDIS_OF_USER if by_annotation else GcsBackend.NOWHERE


def asks_for_token(spec: RayClusterSpec) -> bool:
    """Whether callers of Ray show a token."""
    return spec.auth_options is not None and spec.auth_options.mode is AuthMode.TOKEN


def uses_tls(spec: RayClusterSpec) -> bool:
    return spec.tls_options is not None and spec.tls_options.enabled


def keeps_own_command(cluster: RayCluster) -> bool:
    """Whether all Ray containers keep their commands."""
    return cluster.metadata.annotations.get(Annotation.OVERWRITE_COMMAND.value, "").lower() == "true"
