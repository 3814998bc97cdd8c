"""What a batch scheduler is to the controllers of Ray: scheduling fields of pods, objects beside them, and refusals."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.kube.objects import Object

Manifest = dict[str, Any]
Owner = RayCluster | RayJob
"""What a user made: objects of a scheduler belong to it, and its labels name queue and priority."""


class PodSchedulingFields(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod carries for its scheduler."""

    scheduler_name: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Refusal(msgspec.Struct, frozen=True):
    """Why a scheduler cannot do what is asked."""

    reason: str
    message: str


class BatchSchedule(Protocol):
    """One scheduler."""

    kinds: ClassVar[tuple[type[Object], ...]]
    """Kinds of the objects that it needs, for whoever watches and writes them."""

    def refusal(self, owner: Owner) -> Refusal | None:
        """Why this object of Ray cannot be scheduled so; None if it can."""

    def pod_scheduling_fields(self, owner: Owner, cluster: RayCluster, group: str) -> PodSchedulingFields:
        """What pods of a group carry; of the head's with `HEAD_GROUP`, of the submitter's with `SUBMITTER_GROUP`."""

    def cluster_annotations(self, owner: RayJob) -> Mapping[str, str]:
        """What the RayCluster of a RayJob carries beside the job's labels, so that all pods of the job agree."""

    def objects(self, owner: Owner, cluster: RayCluster | None) -> list[Manifest]:
        """What is beside the pods: whole manifests, each with `owner` as its controller. `cluster` is the one that
        runs; None when a RayJob has ended and has none any more."""
