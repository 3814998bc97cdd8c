"""What a RayCluster of a RayService looks like, and how one that exists differs from that. Pure.

A cluster carries the hash of the spec that it was made from. Numbers of workers are no part of it: Ray's autoscaler
writes them. Where it does not, they follow the service, each time the service's own have changed.
"""

import enum
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import UNLIMITED, RayCluster, RayClusterSpec, WorkerGroupSpec
from gpu_control_plane.api.ray.names import Annotation, Label
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube.objects import LAST_APPLIED, controlled_by
from gpu_control_plane.ray.cluster.manifests import spec_hash
from gpu_control_plane.ray.demand import group_replicas
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.service.gateway_use import is_incremental
from gpu_control_plane.rules.ray.filled_gpus import as_written

Manifest = dict[str, Any]

_ORIGIN: Final = "RayService"
_NOT_COPIED: Final = frozenset({LAST_APPLIED, Annotation.IN_PLACE_UPGRADE, Annotation.INITIALIZING_TIMEOUT})


class Match(enum.Enum):
    """How the spec that a cluster was made from compares with the spec of its service."""

    SAME = "it was made from it"
    GROWN = "it was made from it but for worker groups that have been added at the end"
    OTHER = "it was made from something else"


class SpecFingerprint(msgspec.Struct, frozen=True):
    """Hash and number of worker groups of the spec that a cluster was made from, kept in its annotations."""

    spec_hash: str
    groups: int

    @classmethod
    def of(cls, spec: RayClusterSpec) -> "SpecFingerprint":
        return cls(spec_hash(spec), len(spec.worker_group_specs))

    def annotations(self, options: RayOptions) -> dict[str, str]:
        return {
            Annotation.SPEC_HASH.value: self.spec_hash,
            Annotation.NUM_WORKER_GROUPS.value: str(self.groups),
            Annotation.KUBERAY_VERSION.value: options.version,
        }


def fingerprint_of(cluster: RayCluster) -> SpecFingerprint:
    held = cluster.metadata.annotations
    groups = held.get(Annotation.NUM_WORKER_GROUPS.value, "")
    return SpecFingerprint(held.get(Annotation.SPEC_HASH.value, ""), int(groups) if groups.isdecimal() else 0)


def match(fingerprint: SpecFingerprint, desired: RayClusterSpec) -> Match:
    """Whether a cluster was made from the desired spec."""
    if fingerprint.spec_hash == spec_hash(desired):
        return Match.SAME
    groups = desired.worker_group_specs
    if len(groups) > fingerprint.groups:
        trimmed = replace(desired, worker_group_specs=groups[: fingerprint.groups])
        if fingerprint.spec_hash == spec_hash(trimmed):
            return Match.GROWN
    return Match.OTHER


def fingerprint_when_taken_over(cluster: RayCluster, service: RayService, *, newest: bool) -> SpecFingerprint:
    """The fingerprint of a cluster that another operator, or another release, has made by its own hashes.

    The newest cluster belongs to the spec that its operator had seen last. If that is the spec of today, it is the
    fingerprint of that; otherwise what the cluster is like now decides whether the spec has changed meanwhile.
    """
    seen = service.status.observed_generation == service.metadata.generation
    return SpecFingerprint.of(service.spec.ray_cluster_config if newest and seen else as_written(cluster))


def scale_hash(spec: RayClusterSpec) -> str:
    """Hash of the numbers of workers that a service asks for, without those that Ray's autoscaler decides on."""
    scaled = spec.autoscales
    numbers = [
        (group.group_name, None if scaled else group.replicas, group.min_replicas, group.max_replicas)
        for group in spec.worker_group_specs
    ]
    return hashlib.sha256(msgspec.json.encode(numbers)).hexdigest()[:12]


def cluster_manifest(
    service: RayService,
    name: str,
    options: RayOptions,
    *,
    spec: RayClusterSpec | None = None,
    annotations: Mapping[str, str] = {},
) -> Manifest:
    """A cluster as it is created. `spec` differs from the service's in numbers of workers only."""
    desired = service.spec.ray_cluster_config
    owner = controlled_by(service.resource, service.name, service.metadata.uid)
    metadata = service.metadata
    return {
        "apiVersion": RayCluster.resource.api_version,
        "kind": RayCluster.resource.kind,
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": {
                **metadata.labels,
                Label.ORIGINATED_FROM_NAME.value: service.name,
                Label.ORIGINATED_FROM_KIND.value: _ORIGIN,
            },
            "annotations": {
                **_copied(service),
                **SpecFingerprint.of(desired).annotations(options),
                Annotation.APPLIED_SCALE.value: scale_hash(desired),
                **annotations,
            },
            "ownerReferences": [msgspec.to_builtins(owner)],
        },
        "spec": msgspec.to_builtins(spec or desired),
    }


def _copied(service: RayService) -> dict[str, str]:
    # In an incremental upgrade the Service of a cluster is made by us, under the same name.
    left_out = _NOT_COPIED | ({Annotation.ENABLE_SERVE_SERVICE.value} if is_incremental(service) else set())
    return {key: value for key, value in service.metadata.annotations.items() if key not in left_out}


def wanted_groups(cluster: RayCluster, desired: RayClusterSpec) -> tuple[WorkerGroupSpec, ...]:
    """The groups that a cluster should have, with as many workers as the service wants; under Ray's autoscaler, as
    many as that has decided, within the bounds of the service."""
    held = {group.group_name: group for group in cluster.spec.worker_group_specs}
    scaled = desired.autoscales
    return tuple(
        replace(
            group,
            replicas=held[group.group_name].replicas if scaled else group.replicas,
            scale_strategy=held[group.group_name].scale_strategy,
            suspend=held[group.group_name].suspend,
        )
        if group.group_name in held
        else group
        for group in desired.worker_group_specs
    )


def with_replicas(group: WorkerGroupSpec, bounds: WorkerGroupSpec, replicas: int, *, scaled: bool) -> WorkerGroupSpec:
    """The group with exactly so many replicas, for as long as an upgrade decides on them. `bounds` are the service's;
    Ray's autoscaler is kept from asking for more."""
    least, most = bounds.min_replicas or 0, UNLIMITED if bounds.max_replicas is None else bounds.max_replicas
    return replace(
        group,
        replicas=replicas,
        min_replicas=min(least, replicas),
        max_replicas=replicas if scaled else max(most, replicas),
    )


def replicas_of(spec: RayClusterSpec) -> dict[str, int]:
    """Replicas by group."""
    return {group.group_name: group_replicas(group) for group in spec.worker_group_specs}
