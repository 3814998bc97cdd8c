"""Which pods of a RayCluster are deleted, and which are made. Pure: a snapshot in, a plan out.

The order of the questions is KubeRay's: is it suspended, is all made anew, the head, and then group by group. What is
ours: groups that are gone take their pods along, a change of the spec may be rolled out, and what was refused or does
not last is tried again less and less often.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import ClusterCondition, RayCluster, UpgradeType, WorkerGroupSpec
from gpu_control_plane.api.ray.names import HEAD_GROUP, Annotation
from gpu_control_plane.kube.conditions import is_true
from gpu_control_plane.ray.cluster.pod_state import (
    finds_no_room,
    is_gated,
    is_lost,
    is_worker,
    made,
    progress,
    template_hash,
)
from gpu_control_plane.ray.cluster.worker_groups import (
    MOST_ORDERS,
    GroupPlan,
    PodOrder,
    Removal,
    Replica,
    Why,
    plan_group,
    plan_rolling,
)
from gpu_control_plane.ray.demand import group_replicas
from gpu_control_plane.ray.owned import RayPod

_TRUE: Final = "true"


class PodSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A RayCluster and the pods that belong to it."""

    cluster: RayCluster
    pods: tuple[RayPod, ...]
    template_hashes: Mapping[str, str]
    """What pods carry that are as the spec says, by group; the head's under `HEAD_GROUP`."""
    recreate_hash: str
    version: str
    """What `Annotation.KUBERAY_VERSION` says of pods of this operator."""
    random_delete: bool = False
    gated: frozenset[str] = frozenset()
    """Groups whose new pods wait for each other."""
    not_before: Mapping[str, datetime] = {}
    """When pods of a group may be asked for again, where they have failed."""
    undeletable_until: Mapping[str, datetime] = {}
    """When pods of a group may be deleted again, where that has failed."""
    now: datetime


class PodPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with pods, in this order."""

    removals: tuple[Removal, ...] = ()
    orders: tuple[PodOrder, ...] = ()
    refresh: RayPod | None = None
    """A head that another release has made: its annotations are to name this one and today's spec."""
    postponed: frozenset[str] = frozenset()
    """Groups of which pods are to be deleted later, since that has failed."""
    again_at: datetime | None = None
    """When to look again for what is held back."""


def plan_pods(snapshot: PodSnapshot, rng: random.Random) -> PodPlan:
    """What makes the pods be as the spec says."""
    plan = _plan(snapshot, rng)
    waits = [due for due in (plan.again_at,) if due is not None]
    removals, postponed = [], set()
    for removal in plan.removals:
        due = snapshot.undeletable_until.get(removal.pod.group)
        if due is not None and due > snapshot.now:
            waits.append(due)
            postponed.add(removal.pod.group)
        else:
            removals.append(removal)
    again_at = min(waits, default=None)
    return replace(plan, removals=tuple(removals), postponed=frozenset(postponed), again_at=again_at)


def _plan(snapshot: PodSnapshot, rng: random.Random) -> PodPlan:
    cluster, pods = snapshot.cluster, snapshot.pods
    if is_suspended(cluster):
        return PodPlan(removals=_all(pods, Why.SUSPENDED))
    heads = [pod for pod in pods if pod.is_head]
    living = sorted((pod for pod in heads if not pod.deleting), key=lambda pod: (-progress(pod), made(pod), pod.name))
    refresh = _to_refresh(snapshot, living)
    if refresh is None and _all_made_anew(snapshot, living):
        return PodPlan(removals=_all(pods, Why.OUTDATED))
    if living and is_lost(living[0]):
        return PodPlan(removals=tuple(Removal(pod, Why.LOST) for pod in living), refresh=None)
    orders: list[PodOrder] = []
    if not heads:
        if _head_stays_away(cluster):
            return PodPlan()
        orders.append(PodOrder(HEAD_GROUP))
    doubles = [Removal(pod, Why.DOUBLE_HEAD) for pod in living[1:]]
    groups = {group.group_name: group for group in cluster.spec.worker_group_specs}
    by_group: Mapping[str, list[RayPod]] = defaultdict(list)
    for pod in pods:
        if is_worker(pod):
            by_group[pod.group].append(pod)
    strays = [
        Removal(pod, Why.GROUP_GONE)
        for name, members in by_group.items()
        if name not in groups
        for pod in members
        if not pod.deleting
    ]
    plans: dict[str, GroupPlan] = {}
    room = MOST_ORDERS
    for name, group in groups.items():
        held_back = _held_back(snapshot, name)
        # Of one that is held back, the first tells when to look again, and takes no room from the others.
        plans[name] = _plan_group(snapshot, group, by_group[name], rng, most=1 if held_back else room)
        room -= 0 if held_back else len(plans[name].orders)
    rolled = _roll(snapshot, living, plans)
    removals = (*doubles, *strays, *(removal for plan in plans.values() for removal in plan.removals), *rolled)
    orders += [order for plan in plans.values() for order in plan.orders]
    if any(order.group == HEAD_GROUP and _held_back(snapshot, HEAD_GROUP) for order in orders):
        # Workers would only wait for it, and hold cards.
        orders = [order for order in orders if order.group == HEAD_GROUP]
    now_due = tuple(order for order in orders if not _held_back(snapshot, order.group))
    waits = [snapshot.not_before[order.group] for order in orders if _held_back(snapshot, order.group)]
    return PodPlan(removals=removals, orders=now_due, refresh=refresh, again_at=min(waits, default=None))


def is_suspended(cluster: RayCluster) -> bool:
    """Whether it has no pods for now. A suspension that has begun is carried to its end."""
    return bool(cluster.spec.suspend) or is_true(cluster.status.conditions, ClusterCondition.SUSPENDING)


def scales_itself(cluster: RayCluster) -> bool:
    """Whether Ray's autoscaler says how many workers there are, and which go."""
    return bool(cluster.spec.enable_in_tree_autoscaling)


def _plan_group(
    snapshot: PodSnapshot, group: WorkerGroupSpec, pods: Sequence[RayPod], rng: random.Random, *, most: int
) -> GroupPlan:
    return plan_group(
        group,
        pods,
        scales_itself=scales_itself(snapshot.cluster),
        random_delete=snapshot.random_delete,
        gated=group.group_name in snapshot.gated,
        most=most,
        rng=rng,
    )


def _head_stays_away(cluster: RayCluster) -> bool:
    """Whether a head that is lost is not made anew, because an annotation says so and it was up once."""
    stays = cluster.metadata.annotations.get(Annotation.DISABLE_HEAD_RESTART, "").lower() == _TRUE
    return stays and is_true(cluster.status.conditions, ClusterCondition.PROVISIONED)


def _strategy(cluster: RayCluster) -> UpgradeType | None:
    strategy = cluster.spec.upgrade_strategy
    return strategy.type if strategy is not None else None


def _all_made_anew(snapshot: PodSnapshot, heads: Sequence[RayPod]) -> bool:
    """Whether the strategy Recreate applies: the head was made from another spec or, where there is no head, a worker
    was."""
    if _strategy(snapshot.cluster) is not UpgradeType.RECREATE:
        return False
    if heads:
        held = heads[0].metadata.annotations.get(Annotation.RECREATE_HASH, "")
        return bool(held) and held != snapshot.recreate_hash
    workers = (pod for pod in snapshot.pods if is_worker(pod) and not pod.deleting)
    return any(template_hash(pod) not in ("", snapshot.template_hashes.get(pod.group)) for pod in workers)


def _to_refresh(snapshot: PodSnapshot, heads: Sequence[RayPod]) -> RayPod | None:
    """The head, if another release made it: that release may have written its hash of the same spec differently."""
    if not heads or _strategy(snapshot.cluster) is not UpgradeType.RECREATE:
        return None
    annotations = heads[0].metadata.annotations
    other = annotations.get(Annotation.KUBERAY_VERSION) != snapshot.version
    return heads[0] if other and Annotation.RECREATE_HASH in annotations else None


def _roll(snapshot: PodSnapshot, heads: Sequence[RayPod], plans: Mapping[str, GroupPlan]) -> list[Removal]:
    """With RollingUpdate, what is replaced next: in the first group that is not done, and last the head. Where nothing
    is ready the head goes first: it may be what keeps the others from it."""
    cluster = snapshot.cluster
    strategy = cluster.spec.upgrade_strategy
    if strategy is None or strategy.type is not UpgradeType.ROLLING:
        return []
    most = strategy.max_unavailable or 1
    head = heads[0] if heads and not _head_stays_away(cluster) else None
    if head is not None and template_hash(head) == snapshot.template_hashes.get(HEAD_GROUP, ""):
        head = None
    if head is not None and not any(pod.ready for pod in (head, *_kept_pods(plans))):
        return [Removal(head, Why.OUTDATED)]
    for group in cluster.spec.worker_group_specs:
        kept = plans[group.group_name].kept
        expected = snapshot.template_hashes.get(group.group_name, "")
        if any(replica.is_outdated(expected) for replica in kept):
            return plan_rolling(kept, group_replicas(group), expected, most)
    if head is None or not all(_is_done(snapshot, name, plan) for name, plan in plans.items()):
        return []
    return [Removal(head, Why.OUTDATED)]


def _kept_pods(plans: Mapping[str, GroupPlan]) -> Iterator[RayPod]:
    return (pod for plan in plans.values() for replica in plan.kept for pod in replica.pods)


def _is_done(snapshot: PodSnapshot, group: str, plan: GroupPlan) -> bool:
    """Whether there is nothing to wait for in a group of which no worker is outdated."""
    return (plan.complete or _held_back(snapshot, group)) and all(_is_settled(replica) for replica in plan.kept)


def _is_settled(replica: Replica) -> bool:
    """Whether it is ready. One that no node has room for may wait for long, and keeps nobody from going on."""
    return all(pod.ready or is_gated(pod) or finds_no_room(pod) for pod in replica.pods)


def _held_back(snapshot: PodSnapshot, group: str) -> bool:
    due = snapshot.not_before.get(group)
    return due is not None and due > snapshot.now


def _all(pods: Iterable[RayPod], why: Why) -> tuple[Removal, ...]:
    return tuple(Removal(pod, why) for pod in pods if not pod.deleting)
