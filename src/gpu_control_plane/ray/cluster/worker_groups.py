"""Which workers of one group are deleted, and which are made. Pure.

A replica is one pod, or as many as the group has hosts, which live and die together. The rules are KubeRay's, except
that a pod is deleted only if it belongs to the cluster, that of too many workers those go first that are of the least
use, and that a pod which is being deleted is replaced at once.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import Final

import msgspec

from gpu_control_plane.api.ray.cluster import WorkerGroupSpec
from gpu_control_plane.ray.cluster.manifests.context import ReplicaIdentity
from gpu_control_plane.ray.cluster.pod_state import (
    Progress,
    host_index,
    is_lost,
    made,
    progress,
    replica_index,
    replica_name,
    template_hash,
)
from gpu_control_plane.ray.demand import group_replicas
from gpu_control_plane.ray.owned import RayPod

MOST_ORDERS: Final = 500
"""Workers that are ordered in one plan; the next one orders more. A spec may say two thousand million in each group."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"


class Why(StrEnum):
    """Why a pod is deleted: the end of a sentence."""

    LOST = "it has ended"
    BROKEN = "its replica is not complete any more"
    NAMED = "scaleStrategy.workersToDelete names it"
    SURPLUS = "it is one too many"
    SUSPENDED = "what it belongs to is suspended"
    GROUP_GONE = "its group is not in the spec any more"
    OUTDATED = "the spec has changed"
    DOUBLE_HEAD = "there is another head"
    DELETED = "its RayCluster is being deleted"


class Removal(msgspec.Struct, frozen=True):
    """A pod to be deleted."""

    pod: RayPod
    why: Why


class PodOrder(msgspec.Struct, frozen=True):
    """A pod to be made."""

    group: str
    identity: ReplicaIdentity = ReplicaIdentity()
    gated: bool = False


class Replica(msgspec.Struct, frozen=True):
    """Pods of one group that live and die together."""

    pods: tuple[RayPod, ...]
    name: str = ""
    index: int | None = None

    @property
    def progress(self) -> Progress:
        """How far the last of its pods has come."""
        return min(map(progress, self.pods))

    @property
    def ready(self) -> bool:
        return self.progress is Progress.READY

    def is_outdated(self, expected_hash: str) -> bool:
        return any(template_hash(pod) != expected_hash for pod in self.pods)


class GroupPlan(msgspec.Struct, frozen=True):
    """What is to be done in a group."""

    removals: tuple[Removal, ...] = ()
    orders: tuple[PodOrder, ...] = ()
    complete: bool = True
    """Whether there is nothing to be made, not even later."""
    kept: tuple[Replica, ...] = ()
    """What stays and is not outdated by anything but its template."""


def plan_group(
    group: WorkerGroupSpec,
    pods: Sequence[RayPod],
    *,
    scales_itself: bool,
    random_delete: bool = False,
    gated: bool = False,
    most: int = MOST_ORDERS,
    rng: random.Random,
) -> GroupPlan:
    """What makes the group have as many workers as it asks for. `pods` are all that the cluster has of it;
    `scales_itself` says that Ray's autoscaler names those that are to go, `most` how many may be made for now."""
    hosts, wanted = max(1, group.num_of_hosts), group_replicas(group)
    named = frozenset(group.scale_strategy.workers_to_delete) if group.scale_strategy is not None else frozenset()
    removals: dict[str, Removal] = {}
    kept: list[Replica] = []
    for replica in gather(pods, hosts):
        why = _why_gone(replica, hosts, named)
        if why is None:
            kept.append(replica)
        else:
            _remove(removals, replica.pods, why)
    surplus = len(kept) - wanted
    if group.suspend:
        for replica in kept:
            _remove(removals, replica.pods, Why.SUSPENDED)
        kept = []
    elif surplus > 0 and (random_delete or not scales_itself):
        kept.sort(key=lambda replica: (-replica.progress, max(map(made, replica.pods)), replica.pods[0].name))
        for replica in kept[-surplus:]:
            _remove(removals, replica.pods, Why.SURPLUS)
        kept = kept[:-surplus]
    missing = (order for replica in kept for order in _missing_hosts(group.group_name, replica, hosts, gated=gated))
    new = _new_replicas(group.group_name, kept, wanted - len(kept), hosts, gated=gated, rng=rng)
    wanting = chain(missing, new)
    orders = tuple(islice(wanting, most))
    complete = not orders and next(wanting, None) is None
    return GroupPlan(tuple(removals.values()), orders, complete, tuple(kept))


def plan_rolling(kept: Iterable[Replica], wanted: int, expected_hash: str, max_unavailable: int) -> list[Removal]:
    """Which replicas are deleted now because the spec has changed, so that at most `max_unavailable` are being
    replaced at once. Those that have never run are no loss; of the others, the ones that are not ready go first."""
    replicas = list(kept)
    outdated = [replica for replica in replicas if replica.is_outdated(expected_hash)]
    idle = [replica for replica in outdated if replica.progress < Progress.RUNNING]
    working = [replica for replica in outdated if replica.progress >= Progress.RUNNING]
    in_change = max(0, wanted - len(working) - sum(replica.ready for replica in replicas if replica not in outdated))
    working.sort(key=lambda replica: (replica.progress, min(map(made, replica.pods)), replica.pods[0].name))
    chosen = idle + working[: max(0, max_unavailable - in_change)]
    return [Removal(pod, Why.OUTDATED) for replica in chosen for pod in replica.pods]


def gather(pods: Iterable[RayPod], hosts: int) -> list[Replica]:
    """The replicas that these pods make up. Pods that are being deleted are none, but break the one they were of."""
    if hosts == 1:
        return [Replica((pod,), index=replica_index(pod)) for pod in pods if not pod.deleting]
    by_name: Mapping[str, list[RayPod]] = defaultdict(list)
    for pod in pods:
        # One without a replica stands alone, and so is never complete.
        by_name[replica_name(pod) or f"/{pod.name}"].append(pod)
    found = []
    for name, members in by_name.items():
        if any(not pod.deleting for pod in members):
            members.sort(key=lambda pod: (made(pod), pod.name))
            found.append(Replica(tuple(members), name, replica_index(members[0])))
    return found


def _why_gone(replica: Replica, hosts: int, named: frozenset[str]) -> Why | None:
    if any(is_lost(pod) for pod in replica.pods):
        return Why.LOST
    if any(pod.name in named for pod in replica.pods):
        return Why.NAMED
    if hosts == 1 or _is_whole(replica, hosts):
        return None
    return Why.BROKEN


def _is_whole(replica: Replica, hosts: int) -> bool:
    """Whether all its hosts are there, or the missing ones can still come: none of the others has begun."""
    held = [host_index(pod) for pod in replica.pods]
    if any(pod.deleting for pod in replica.pods) or replica.index is None or None in held:
        return False
    distinct = {index for index in held if index is not None and index < hosts}
    if len(distinct) < len(held):
        return False
    return len(held) == hosts or all(progress(pod) < Progress.RUNNING for pod in replica.pods)


def _missing_hosts(group: str, replica: Replica, hosts: int, *, gated: bool) -> Iterator[PodOrder]:
    if hosts == 1:
        return
    held = {host_index(pod) for pod in replica.pods}
    for host in range(hosts):
        if host not in held:
            yield PodOrder(group, ReplicaIdentity(replica.index or 0, replica.name, host), gated)


def _new_replicas(
    group: str, kept: Sequence[Replica], count: int, hosts: int, *, gated: bool, rng: random.Random
) -> Iterator[PodOrder]:
    taken = {replica.index for replica in kept}
    for index in islice((index for index in itertools.count() if index not in taken), max(0, count)):
        if hosts == 1:
            yield PodOrder(group, ReplicaIdentity(index), gated)
            continue
        name = f"{group}-{''.join(rng.choices(_LETTERS, k=5))}"
        yield from (PodOrder(group, ReplicaIdentity(index, name, host), gated) for host in range(hosts))


def _remove(removals: dict[str, Removal], pods: Iterable[RayPod], why: Why) -> None:
    for pod in pods:
        if not pod.deleting:
            removals.setdefault(pod.name, Removal(pod, why))
