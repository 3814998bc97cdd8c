"""Makes the pods of a RayCluster be as planned, and remembers what was refused and what does not last."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import HEAD_GROUP, Annotation
from gpu_control_plane.api.ray.reasons import ClusterReason
from gpu_control_plane.ray.cluster.attempts import Attempts
from gpu_control_plane.ray.cluster.caches import ClusterCaches
from gpu_control_plane.ray.cluster.child_reconciler import CHILDREN
from gpu_control_plane.ray.cluster.desired import Desired
from gpu_control_plane.ray.cluster.events import ClusterEvent
from gpu_control_plane.ray.cluster.manifests import head_pod, worker_pod
from gpu_control_plane.ray.cluster.manifests.context import Manifest
from gpu_control_plane.ray.cluster.pod_plan import PodPlan, PodSnapshot, plan_pods
from gpu_control_plane.ray.cluster.pod_state import GANG_GATE, is_gated, made, why_lost
from gpu_control_plane.ray.cluster.pod_writer import PodWriter
from gpu_control_plane.ray.cluster.status import Failure
from gpu_control_plane.ray.cluster.worker_groups import PodOrder, Removal, Why
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.owned import RayPod

_SHORT_LIFE: Final = timedelta(minutes=5)
"""A pod that has ended sooner is made anew after a pause that grows."""
_MISSING_RECHECK: Final = timedelta(minutes=1)
"""Pods that would lack something wait for it. It is watched; this is for what the watch has missed."""
_LOST: Final = "lost/"
"""Before the name of a group, in `Attempts`: its pods do not last. The name alone: they are refused."""
_DELETE: Final = "delete/"
"""The same: they could not be deleted."""
_AT_A_TIME: Final = 128
"""Pods that are made before other clusters have their turn."""
_NAMES_IN_NOTE: Final = 5


class PodReconciler:
    """Plans and carries out what happens to the pods of one cluster after the other."""

    def __init__(
        self, parts: RayComponents, caches: ClusterCaches, writer: PodWriter, attempts: Attempts, rng: random.Random
    ) -> None:
        self._client = parts.runtime.client
        self._events = parts.runtime.events
        self._options = parts.settings.options
        self._now = parts.now
        self._caches = caches
        self._writer = writer
        self._attempts = attempts
        self._rng = rng

    async def reconcile(self, cluster: RayCluster, wanted: Desired) -> datetime | None:
        """Delete and make pods; when to look again, if something is held back."""
        plan = self._plan(cluster, wanted)
        self._drop_settled(cluster, plan)
        if plan.refresh is not None:
            await self._refresh(plan.refresh, wanted)
        if plan.removals:
            await self._remove(cluster, plan.removals)
            plan = self._plan(cluster, wanted)
        if plan.orders and await self._writer.read_back(cluster):
            plan = self._plan(cluster, wanted)
        if plan.orders:
            await self._create(cluster, wanted, plan.orders[:_AT_A_TIME])
            plan = self._plan(cluster, wanted)
        return self._now() if plan.orders else plan.again_at

    def failure(self, cluster: RayCluster) -> Failure | None:
        """What was refused last and has not succeeded since."""
        held = self._attempts.of(cluster.metadata.uid, cluster.metadata.generation).values()
        return next((Failure(attempt.reason, attempt.message) for attempt in held if attempt.reason), None)

    def waiting(self, cluster: RayCluster) -> Mapping[str, str]:
        """Why workers are not made for now, by group."""
        now, found = self._now(), {}
        for what, attempt in self._attempts.of(cluster.metadata.uid, cluster.metadata.generation).items():
            group = what.removeprefix(_LOST)
            if attempt.not_before > now and group not in (HEAD_GROUP, CHILDREN) and not what.startswith(_DELETE):
                found[group] = attempt.message
        return found

    def _plan(self, cluster: RayCluster, wanted: Desired) -> PodPlan:
        pods = self._caches.pods_of(cluster)
        held_back: dict[str, datetime] = dict.fromkeys(wanted.waiting, self._now() + _MISSING_RECHECK)
        undeletable: dict[str, datetime] = {}
        for what, attempt in self._attempts.of(cluster.metadata.uid, cluster.metadata.generation).items():
            if what.startswith(_DELETE):
                undeletable[what.removeprefix(_DELETE)] = attempt.not_before
                continue
            group = what.removeprefix(_LOST)
            held_back[group] = max(held_back.get(group, attempt.not_before), attempt.not_before)
        return plan_pods(
            PodSnapshot(
                cluster=cluster,
                pods=pods,
                template_hashes=wanted.template_hashes,
                recreate_hash=wanted.recreate_hash,
                version=self._options.version,
                random_delete=self._options.random_pod_delete,
                gated=frozenset(group for group in wanted.together if _waits(cluster, group, pods)),
                not_before=held_back,
                undeletable_until=undeletable,
                now=self._now(),
            ),
            self._rng,
        )

    async def _refresh(self, head: RayPod, wanted: Desired) -> None:
        annotations = {
            Annotation.KUBERAY_VERSION.value: self._options.version,
            Annotation.RECREATE_HASH.value: wanted.recreate_hash,
        }
        metadata = head.metadata
        body = {"metadata": {"annotations": annotations}}
        version, namespace = metadata.resource_version, metadata.namespace
        await self._client.patch(RayPod, head.name, body, resource_version=version, namespace=namespace)

    async def _remove(self, cluster: RayCluster, removals: Sequence[Removal]) -> None:
        uid = cluster.metadata.uid
        failed = await self._writer.delete(removals)
        kept = {removal.pod.name for removal, _ in failed}
        self._note_short_lives(cluster, removals)
        for group, pods in _by(lambda each: each.pod.group, removals).items():
            if not any(each.pod.name in kept for each in pods):
                self._attempts.succeeded(uid, f"{_DELETE}{group}")
        self._tell_deleted(cluster, [removal for removal in removals if removal.pod.name not in kept])
        for removal, message in failed:
            head = removal.pod.is_head
            event = ClusterEvent.FAILED_DELETE_HEAD if head else ClusterEvent.FAILED_DELETE_WORKERS
            reason = ClusterReason.FAILED_DELETE_HEAD_POD if head else ClusterReason.FAILED_DELETE_WORKER_POD
            note = f"pod {removal.pod.name} could not be deleted: {message}"
            self._events.warning(cluster, event, note, action="Delete")
            self._failed(cluster, f"{_DELETE}{removal.pod.group}", reason, note)

    def _drop_settled(self, cluster: RayCluster, plan: PodPlan) -> None:
        """Pods that could not be deleted may have gone by themselves, or be wanted again."""
        left = {removal.pod.group for removal in plan.removals} | plan.postponed
        uid, generation = cluster.metadata.uid, cluster.metadata.generation
        for what in self._attempts.of(uid, generation):
            if what.startswith(_DELETE) and what.removeprefix(_DELETE) not in left:
                self._attempts.succeeded(uid, what)

    def _note_short_lives(self, cluster: RayCluster, removals: Iterable[Removal]) -> None:
        now, lost = self._now(), [removal for removal in removals if removal.why is Why.LOST]
        for group, members in _by(lambda each: each.pod.group, lost).items():
            short = [each for each in members if now - made(each.pod) < _SHORT_LIFE]
            if short:
                self._failed(cluster, f"{_LOST}{group}", "", f"pods of it end soon: {why_lost(short[0].pod)}", free=1)
            else:
                self._attempts.succeeded(cluster.metadata.uid, f"{_LOST}{group}")

    def _tell_deleted(self, cluster: RayCluster, removals: Iterable[Removal]) -> None:
        for (head, why), members in _by(lambda each: (each.pod.is_head, each.why), removals).items():
            event = ClusterEvent.DELETED_HEAD if head else ClusterEvent.DELETED_WORKERS
            said = f" ({why_lost(members[0].pod)})" if why is Why.LOST else ""
            note = f"deleted {_pods([each.pod.name for each in members])}: {why}{said}"
            self._events.normal(cluster, event, note, action="Delete")

    async def _create(self, cluster: RayCluster, wanted: Desired, orders: Iterable[PodOrder]) -> None:
        groups = {group.group_name: group for group in cluster.spec.worker_group_specs}

        def manifest(order: PodOrder) -> Manifest:
            if order.group == HEAD_GROUP:
                return head_pod(wanted.context)
            pod = worker_pod(wanted.context, groups[order.group], order.identity)
            return _with_gate(pod) if order.gated else pod

        done, refused = await self._writer.create(cluster, orders, manifest)
        for group, members in _by(lambda each: each[0].group, done).items():
            head = group == HEAD_GROUP
            event = ClusterEvent.CREATED_HEAD if head else ClusterEvent.CREATED_WORKERS
            where = "" if head else f" of group {group}"
            note = f"created {_pods([pod.name for _, pod in members])}{where}"
            self._events.normal(cluster, event, note, action="Create")
            self._attempts.succeeded(cluster.metadata.uid, group)
        for refusal in refused:
            head = refusal.group == HEAD_GROUP
            event = ClusterEvent.FAILED_CREATE_HEAD if head else ClusterEvent.FAILED_CREATE_WORKERS
            reason = ClusterReason.FAILED_CREATE_HEAD_POD if head else ClusterReason.FAILED_CREATE_WORKER_POD
            self._events.warning(cluster, event, refusal.message, action="Create")
            self._failed(cluster, refusal.group, reason, refusal.message)

    def _failed(self, cluster: RayCluster, what: str, reason: str, message: str, *, free: int = 0) -> None:
        uid, generation = cluster.metadata.uid, cluster.metadata.generation
        self._attempts.failed(uid, what, reason, message, generation=generation, now=self._now(), free=free)


def _waits(cluster: RayCluster, name: str, pods: Iterable[RayPod]) -> bool:
    """Whether new pods of a group wait for each other: until one of it may be scheduled, and each replica of several
    hosts by itself."""
    group = next((group for group in cluster.spec.worker_group_specs if group.group_name == name), None)
    if group is not None and group.num_of_hosts > 1:
        return True
    return not any(pod.group == name and not is_gated(pod) and not pod.deleting and not pod.ended for pod in pods)


def _with_gate(manifest: Manifest) -> Manifest:
    spec = manifest["spec"]
    gates = [gate for gate in spec.get("schedulingGates") or () if gate.get("name") != GANG_GATE]
    return {**manifest, "spec": {**spec, "schedulingGates": [*gates, {"name": GANG_GATE}]}}


def _by[K, T](key: Callable[[T], K], items: Iterable[T]) -> dict[K, list[T]]:
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def _pods(names: Sequence[str]) -> str:
    """The pods of an Event: not all of a thousand."""
    more = len(names) - _NAMES_IN_NOTE
    listed = ", ".join(sorted(names)[:_NAMES_IN_NOTE])
    return f"{'pod' if len(names) == 1 else 'pods'} {listed}{f' and {more} more' if more > 0 else ''}"
