"""What the controller of RayClusters reads: clusters, pods and what goes with them, by their owner."""

from collections.abc import Iterable, Mapping
from typing import Final

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.kube.objects import Key, Object, controller_of
from gpu_control_plane.ray.cluster.children import KINDS, OwnedRoute
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.names import redis_cleanup_job_name
from gpu_control_plane.ray.owned import (
    MADE_HERE,
    OF_CLUSTERS,
    OwnedClaim,
    OwnedJob,
    OwnedSecret,
    OwnedService,
    RayPod,
    is_owned,
)
from gpu_control_plane.ray.scheduling import BatchSchedule
from gpu_control_plane.ray.watched import Watched

BY_OWNER: Final = "ray/owner"
"""Index of what belongs to an object of Ray, by that one's uid."""

_BY_CLUSTER_LABEL: Final = frozenset({OwnedSecret, OwnedClaim})
"""Kinds whose objects carry no label but the cluster's, as KubeRay makes them."""


class ClusterCaches:
    """The caches, and what they show of one cluster."""

    def __init__(self, parts: RayComponents, scheduler: BatchSchedule | None) -> None:
        self.clusters = parts.caches(RayCluster)
        self.pods = parts.caches(RayPod, OF_CLUSTERS)
        self.pods.index(BY_OWNER, by_owner)
        self.jobs = parts.caches(OwnedJob, MADE_HERE)
        kinds = (*KINDS, *((OwnedRoute,) if parts.settings.options.openshift else ()))
        self.children: dict[type[Object], Watched[Object]] = {}
        for kind in kinds:
            children = parts.caches(kind, OF_CLUSTERS if kind in _BY_CLUSTER_LABEL else MADE_HERE)
            children.index(BY_OWNER, by_owner)
            self.children[kind] = children
        for kind in scheduler.kinds if scheduler is not None else ():
            self.children[kind] = parts.caches(kind)
            self.children[kind].index(BY_OWNER, by_owner)

    def pods_of(self, cluster: RayCluster) -> tuple[RayPod, ...]:
        """The pods that the cluster has made, also those that are being deleted; the oldest first."""
        held = (pod for pod in self.pods.by_index(BY_OWNER, cluster.metadata.uid) if is_owned(pod, cluster))
        return tuple(sorted(held, key=lambda pod: (pod.metadata.creation_timestamp is None, pod.name)))

    def children_of(self, cluster: RayCluster) -> Mapping[type[Object], list[Object]]:
        """What else it has made, by kind."""
        return {
            kind: [held for held in cache.by_index(BY_OWNER, cluster.metadata.uid) if is_owned(held, cluster)]
            for kind, cache in self.children.items()
        }

    def child(self, cluster: RayCluster, kind: type[Object], name: str) -> Object | None:
        """An object beside pods by its name, whosever it is."""
        cache = self.children.get(kind)
        return cache.get(name, cluster.metadata.namespace) if cache is not None else None

    def service(self, cluster: RayCluster, name: str) -> OwnedService | None:
        held = self.children[OwnedService].get(name, cluster.metadata.namespace)
        return held if isinstance(held, OwnedService) and is_owned(held, cluster) else None

    def cleanup_job(self, cluster: RayCluster) -> OwnedJob | None:
        """The Job that removes the cluster's keys from Redis."""
        held = self.jobs.get(redis_cleanup_job_name(cluster.name), cluster.metadata.namespace)
        return held if held is not None and is_owned(held, cluster) else None


def by_owner(item: Object) -> Iterable[str]:
    owner = controller_of(item)
    return (owner.uid,) if owner is not None else ()


def owning_cluster(item: Object) -> Iterable[Key]:
    """The RayCluster that made the object, whose it has to be by uid, too."""
    owner = controller_of(item)
    is_cluster = owner is not None and (owner.api_version, owner.kind) == (
        RayCluster.resource.api_version,
        RayCluster.resource.kind,
    )
    return (Key(owner.name, item.metadata.namespace),) if owner is not None and is_cluster else ()


def meant_cluster(item: Object) -> Iterable[Key]:
    """The RayCluster that made the object, or else the one of its label: a volume that is kept beyond its cluster has
    no owner."""
    label = item.metadata.labels.get(Label.CLUSTER, "")
    return tuple(owning_cluster(item)) or ((Key(label, item.metadata.namespace),) if label else ())
