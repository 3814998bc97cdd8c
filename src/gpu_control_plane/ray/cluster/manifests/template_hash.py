"""The hash of what a pod of Ray is made from: pods that carry another one than their group has today are out of date.

It holds what users say, as they say it, and nothing that the operator adds: neither a new release of the operator, nor
its switches, nor a change of a pool makes running pods out of date. Nor do how many workers there are, the order of
keys, parts that are empty, another spelling of a
quantity, and what was filled in for the autoscaler. Scheduling gates count only while a pod is made, and
other controllers add them.
"""

import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpu_control_plane.api.ray.cluster import (
    AutoscalerVersion,
    GcsFaultTolerance,
    GroupSpec,
    RayCluster,
    WorkerGroupSpec,
)
from gpu_control_plane.api.ray.names import Annotation, Label
from gpu_control_plane.kube.quantities import parse_quantity
from gpu_control_plane.ray.cluster.manifests.features import (
    GcsBackend,
    asks_for_token,
    autoscaler_version,
    gcs_backend,
    keeps_own_command,
    uses_tls,
)
from gpu_control_plane.ray.cluster.manifests.hashes import digest
from gpu_control_plane.ray.cluster.manifests.probes import has_one_health_address
from gpu_control_plane.rules.ray.filled_gpus import group_as_written

_READ_BY_RAY: Final = ("idleTimeoutSeconds", "upscalingMode")
"""Options of the autoscaler that Ray reads from the RayCluster while it runs."""
_OF_THE_CLAIM: Final = frozenset({"accessModes", "deletionPolicy", "size", "storageClassName"})
_MEAN_NOTHING_EMPTY: Final = frozenset(
    {"annotations", "labels", "limits", "nodeSelector", "requests", "resources", "securityContext"}
)
_QUANTITIES: Final = frozenset({"limits", "requests"})


def template_hash(cluster: RayCluster, group: WorkerGroupSpec | None = None) -> str:
    """What the pods of a group carry that are as the spec says; the head's without a group."""
    whole = {**_of_group(group_as_written(cluster, group or cluster.spec.head_group_spec)), **_of_cluster(cluster)}
    whole |= _of_head(cluster) if group is None else _of_workers(cluster, group)
    return digest(_plain(whole))


def _of_group(group: GroupSpec) -> dict[str, Any]:
    template = group.template
    metadata = template.get("metadata") or {}
    spec = {name: value for name, value in (template.get("spec") or {}).items() if name != "schedulingGates"}
    return {
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "spec": spec,
        "params": group.ray_start_params or None,
        "resources": {name: _quantity(value) for name, value in group.resources.items()},
        "rayLabels": group.labels or None,
    }


def _of_cluster(cluster: RayCluster) -> dict[str, Any]:
    """What pods of every group are made from."""
    spec = cluster.spec
    return {
        "oneHealthAddress": has_one_health_address(spec.ray_version) or None,
        "ownCommand": keeps_own_command(cluster) or None,
        "token": msgspec.to_builtins(spec.auth_options) if asks_for_token(spec) else None,
        "tls": uses_tls(spec) or None,
        "history": msgspec.to_builtins(spec.history_server_options),
        "headService": ((spec.head_group_spec.head_service or {}).get("metadata") or {}).get("name"),
    }


def _of_head(cluster: RayCluster) -> dict[str, Any]:
    spec, annotations = cluster.spec, cluster.metadata.annotations
    scaling = msgspec.to_builtins(spec.autoscaler_options) if spec.autoscaler_options is not None else {}
    return {
        "autoscaler": {name: value for name, value in scaling.items() if name not in _READ_BY_RAY}
        if spec.autoscales
        else None,
        "autoscales": spec.autoscales or None,
        "kept": gcs_backend(cluster).name,
        "gcs": _of_gcs(spec.gcs_fault_tolerance_options),
        "storageNamespace": annotations.get(Annotation.EXTERNAL_STORAGE_NAMESPACE.value),
    }


def _of_gcs(options: GcsFaultTolerance | None) -> dict[str, Any] | None:
    """Without what only the claim is made from: pods name it."""
    if options is None:
        return None
    told: dict[str, Any] = msgspec.to_builtins(options)
    storage = {name: value for name, value in (told.get("storage") or {}).items() if name not in _OF_THE_CLAIM}
    return {**told, "storage": storage or None}


def _of_workers(cluster: RayCluster, group: WorkerGroupSpec) -> dict[str, Any]:
    return {
        "port": cluster.spec.head_group_spec.ray_start_params.get("port"),
        "kept": gcs_backend(cluster) is not GcsBackend.NOWHERE or None,
        "neverRestarts": autoscaler_version(cluster.spec) is AutoscalerVersion.V2 or None,
        "hosts": group.num_of_hosts if group.num_of_hosts > 1 else None,
        "origin": cluster.metadata.labels.get(Label.ORIGINATED_FROM_KIND.value),
    }


def _plain(value: Any, *, quantities: bool = False) -> Any:
    """The value without what is empty, and with quantities in one spelling: the members of limits and requests."""
    match value:
        case Mapping():
            kept = {
                name: _quantity(part)
                if quantities and isinstance(part, int | float | str)
                else _plain(part, quantities=name in _QUANTITIES)
                for name, part in value.items()
            }
            return {name: part for name, part in kept.items() if not _is_nothing(name, part)}
        case list() | tuple():
            return [_plain(part) for part in value]
        case _:
            return value


def _is_nothing(name: str, part: object) -> bool:
    """Whether a part says as much as none would. An empty selector is not nothing: it selects everything."""
    return part is None or part in ("", []) or (part == {} and name in _MEAN_NOTHING_EMPTY)


def _quantity(quantity: object) -> str:
    return _one_spelling(str(quantity))


@functools.lru_cache(256)
def _one_spelling(text: str) -> str:
    try:
        return str(parse_quantity(text).normalize())
    except ValueError:
        return text
