"""What manifests of a RayCluster are made from, beside its spec."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import HEAD_GROUP, Label
from gpu_control_plane.kube.objects import controlled_by
from gpu_control_plane.ray.names import head_service_of, host_of
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.scheduling.surface import PodSchedulingFields
from gpu_control_plane.rules.ray.gpus import Claims, PoolResources

Manifest = dict[str, Any]

RAY_CLUSTER = "RayCluster"
RAY_JOB = "RayJob"
RAY_SERVICE = "RayService"


class ReplicaIdentity(msgspec.Struct, frozen=True):
    """Which worker of its group a pod is."""

    index: int = 0
    """Of the replica in the group."""
    name: str = ""
    """Of the replica, where it has several hosts."""
    host: int = 0
    """Of the pod in such a replica."""


class ClusterContext(msgspec.Struct, frozen=True, kw_only=True):
    """A RayCluster, and what its objects depend on beside it."""

    cluster: RayCluster
    options: RayOptions = RayOptions()
    gpus: PoolResources = msgspec.field(default_factory=PoolResources)
    claims: Claims = {}
    """Specs of the ResourceClaimTemplates in its namespace that its pods use."""
    scheduling_fields: Mapping[str, PodSchedulingFields] = {}
    """What a batch scheduler wants on pods, by group."""

    @property
    def namespace(self) -> str:
        return self.cluster.metadata.namespace or "default"

    @property
    def head_service_name(self) -> str:
        """The name of the head's Service."""
        return head_service_of(self.cluster)

    @property
    def head_host(self) -> str:
        """The head's name in DNS."""
        return host_of(self.head_service_name, self.namespace, self.options.cluster_domain)

    @property
    def gcs_port(self) -> str:
        """The port at which workers find the head."""
        return self.cluster.spec.head_group_spec.ray_start_params.get("port", "6379")

    @property
    def origin_kind(self) -> str:
        """The kind of object that made the cluster: `RayCluster` where a user did."""
        return self.cluster.metadata.labels.get(Label.ORIGINATED_FROM_KIND.value) or RAY_CLUSTER

    @property
    def origin_name(self) -> str:
        return self.cluster.metadata.labels.get(Label.ORIGINATED_FROM_NAME.value, "")

    def group_scheduling_fields(self, group: str = HEAD_GROUP) -> PodSchedulingFields:
        return self.scheduling_fields.get(group, PodSchedulingFields())

    def owner_references(self) -> list[Manifest]:
        """The references by which an object belongs to the cluster."""
        metadata = self.cluster.metadata
        reference = controlled_by(self.cluster.resource, metadata.name, metadata.uid)
        return [msgspec.to_builtins(reference)]
