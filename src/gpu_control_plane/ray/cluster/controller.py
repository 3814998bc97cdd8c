"""RayClusters as a controller: it reads clusters, pods and what goes with them, decides, and writes the difference.

A reconcile asks in KubeRay's order: is it ours, is it being deleted, is it valid, what is beside the pods, the pods,
the status. While KubeRay's own operator is active it only says so.
"""

import random
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.ray.cluster import ClusterCondition, RayCluster, RayClusterStatus
from gpu_control_plane.api.ray.names import MANAGED_BY_US, Finalizer
from gpu_control_plane.api.ray.reasons import ClusterReason
from gpu_control_plane.kube.conditions import FALSE, condition, find
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.finalizers import add_finalizer
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.ray.cluster.attempts import Attempts
from gpu_control_plane.ray.cluster.caches import ClusterCaches, meant_cluster, owning_cluster
from gpu_control_plane.ray.cluster.child_reconciler import CHILDREN, ChildReconciler
from gpu_control_plane.ray.cluster.children import Child, certificate_children
from gpu_control_plane.ray.cluster.claims import NONE as NO_TEMPLATES
from gpu_control_plane.ray.cluster.claims import ClaimTemplates, ClaimView
from gpu_control_plane.ray.cluster.deletion import needs_redis_cleanup
from gpu_control_plane.ray.cluster.desired import Desired, capacity, desired, wants_gang
from gpu_control_plane.ray.cluster.events import ClusterEvent
from gpu_control_plane.ray.cluster.gang_controller import GangController
from gpu_control_plane.ray.cluster.idle_watch import IdleWatch, next_look
from gpu_control_plane.ray.cluster.manifests import ClusterContext
from gpu_control_plane.ray.cluster.pod_plan import is_suspended
from gpu_control_plane.ray.cluster.pod_reconciler import PodReconciler
from gpu_control_plane.ray.cluster.pod_state import runs_autoscaler
from gpu_control_plane.ray.cluster.pod_writer import PodWriter
from gpu_control_plane.ray.cluster.redis_cleanup import RedisCleanup
from gpu_control_plane.ray.cluster.status import StatusSnapshot, cluster_status
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.owned import OwnedClaim, OwnedService
from gpu_control_plane.ray.pool_demand import pod_units
from gpu_control_plane.ray.scheduling import scheduler_for, scheduling_fields_of
from gpu_control_plane.ray.status_patch import differs, write_status
from gpu_control_plane.rules.largest_nodes import LargestNodes
from gpu_control_plane.rules.ray.gpus import PoolFacts, PoolResources

STATUS_INTERVAL: Final = timedelta(seconds=1)
"""Between two writes of the status of one cluster: pods that start change it many times."""
_SOONEST_SECONDS: Final = 0.01
_CLAIMS_SECONDS: Final = 0.2
"""Until templates of claims are asked for again that are being read."""
_WORKERS: Final = 16
_BY_RESOURCE: Final = "ray/resource"


def build(parts: RayComponents, *, rng: random.Random | None = None) -> None:
    """Add RayClusters to a process."""
    _Clusters(parts, rng or random.Random())


class _Memory(msgspec.Struct, kw_only=True):
    """What is remembered of a cluster; nothing that a new leader would miss."""

    uid: str
    token: bytes = msgspec.field(default_factory=lambda: secrets.token_bytes(32))
    fingerprint: tuple[object, ...] = ()
    desired: Desired | None = None
    pools: PoolResources | None = None
    """Those that `desired` was worked out for."""
    claims: ClaimView = NO_TEMPLATES
    """The same of templates of claims."""
    written_at: datetime | None = None
    """When the status was written last."""
    said: dict[str, frozenset[str]] = msgspec.field(default_factory=dict)
    """What it has been warned of last, by the reason of the Event."""


class _Outcome(msgspec.Struct, kw_only=True):
    """What a reconcile has come to so far."""

    error: str = ""
    due: list[datetime] = msgspec.field(default_factory=list)
    """When to look again."""

    def again_at(self, moment: datetime | None) -> None:
        if moment is not None:
            self.due.append(moment)


class _Clusters:
    """The controller of RayClusters."""

    def __init__(self, parts: RayComponents, rng: random.Random) -> None:
        runtime, settings = parts.runtime, parts.settings
        self._parts = parts
        self._client = runtime.client
        self._events = runtime.events
        self._options = settings.options
        self._scheduler = scheduler_for(settings.options.batch_scheduler)
        self._caches = caches = ClusterCaches(parts, self._scheduler)
        caches.clusters.index(_BY_RESOURCE, _resources)
        self._largest = LargestNodes()
        runtime.cache(GPUNodeState).on_change(self._largest.changed)
        self._attempts = Attempts(settings.pod_retry, rng)
        self._gang = GangController(parts, caches, self._largest.units)
        self._idle = IdleWatch(parts, caches)
        self._claims = ClaimTemplates(runtime.unfenced_client)
        runtime.service(self._claims.run)
        self._writer = PodWriter(runtime.client, caches.pods, settings.options.watch_namespaces)
        self._pods = PodReconciler(parts, caches, self._writer, self._attempts, rng)
        self._cleanup = RedisCleanup(parts, caches, self._writer, self._attempts)
        self._children = ChildReconciler(runtime.client, parts.writer, runtime.events)
        self._memory: dict[Key, _Memory] = {}
        runtime.on_lead(self._forget_all)

        controller = runtime.controller("ray-cluster", self._reconcile, workers=_WORKERS)
        caches.clusters.watch(controller, when=_matters)
        caches.pods.watch(controller, owning_cluster)
        caches.jobs.watch(controller, owning_cluster)
        for kind, children in caches.children.items():
            children.watch(controller, meant_cluster if kind is OwnedClaim else owning_cluster)
        controller.watch(self._gang.changed, lambda fired: (fired.key,))
        controller.watch(self._idle.changed, lambda fired: (fired.key,))
        controller.watch(self._claims.changed, lambda fired: (fired.key,))
        controller.watch(parts.lease.changed, lambda _fired: [cluster.key for cluster in caches.clusters])
        controller.watch(parts.pools, self._asking_for, _facts_changed)

    def _forget_all(self) -> None:
        """This process begins to lead: another one may have written what the caches do not show yet."""
        self._writer.suspect()
        self._children.clear()
        self._attempts.clear()
        self._memory.clear()

    def _forget(self, key: Key, uid: str) -> None:
        self._memory.pop(key, None)
        self._attempts.forget(uid)
        self._writer.forget(uid)
        self._children.forget(uid)
        self._idle.forget(key)
        self._claims.forget(key)

    def _asking_for(self, pool: GPUPool) -> Iterable[Key]:
        """The clusters that ask for a pool."""
        for resource in pool.resource_names:
            for cluster in self._caches.clusters.by_index(_BY_RESOURCE, resource):
                yield cluster.key

    async def _reconcile(self, key: Key) -> Requeue | None:
        cluster, memory = self._caches.clusters.at(key), self._memory.get(key)
        if memory is not None and (cluster is None or cluster.metadata.uid != memory.uid):
            self._forget(key, memory.uid)
        if cluster is None or cluster.spec.managed_by not in ("", MANAGED_BY_US):
            return None
        holder = self._parts.lease.active()
        if holder is not None:
            await self._report_other_operator(cluster, f"{holder.holder} in namespace {holder.namespace}")
            return None
        if cluster.deleting:
            return await self._cleanup.carry_on(cluster)
        return await self._reconcile_cluster(cluster)

    async def _reconcile_cluster(self, cluster: RayCluster) -> Requeue | None:
        """Make all that belongs to a cluster be as it should be, and say how it stands."""
        memory = self._memory.setdefault(cluster.key, _Memory(uid=cluster.metadata.uid))
        if needs_redis_cleanup(cluster) and self._options.redis_cleanup:
            cluster = await add_finalizer(self._client, cluster, Finalizer.REDIS_CLEANUP)
        claims = self._claims.of(cluster)
        if claims is None:
            return Requeue(_CLAIMS_SECONDS)
        wanted, outcome = self._desired(cluster, memory, claims), _Outcome()
        if wanted.problems:
            self._warn(memory, cluster, wanted.problems[0].reason, [wanted.problem])
            complete = False
        else:
            complete = await self._reconcile_children(cluster, wanted, outcome)
        if complete or is_suspended(cluster):  # Suspended pods are deleted, whatever else is wrong.
            outcome.again_at(await self._pods.reconcile(cluster, wanted))
        idle = self._idle.look(cluster, self._head_service(cluster))
        if idle.suspend:
            await self._idle.suspend(cluster)
            return None  # The change brings it here again.
        outcome.again_at(next_look(idle, self._parts.now()))
        await self._write_status(cluster, wanted, memory, outcome)
        if not outcome.due:
            return None
        return Requeue(max((min(outcome.due) - self._parts.now()).total_seconds(), _SOONEST_SECONDS))

    def _desired(self, cluster: RayCluster, memory: _Memory, claims: ClaimView) -> Desired:
        """What there should be: worked out anew when the spec, or what is known of pools and claims, has changed."""
        metadata, pools = cluster.metadata, self._parts.gpus.current
        fingerprint = (metadata.generation, metadata.labels, metadata.annotations)
        known = memory.pools is pools and memory.claims == claims
        if memory.desired is None or memory.fingerprint != fingerprint or not known:
            scheduling_fields = scheduling_fields_of(self._scheduler, cluster, cluster)
            context = ClusterContext(
                cluster=cluster,
                options=self._options,
                gpus=pools,
                claims=claims.specs,
                scheduling_fields=scheduling_fields,
            )
            gang = self._scheduler is None and wants_gang(cluster, by_default=self._options.gang)
            memory.desired = desired(context, self._scheduler, memory.token, gang=gang, missing=claims.missing)
            memory.fingerprint, memory.pools, memory.claims = fingerprint, pools, claims
            self._warn(memory, cluster, ClusterEvent.IGNORED_PARAMETER, memory.desired.warnings)
        return memory.desired

    async def _reconcile_children(self, cluster: RayCluster, wanted: Desired, outcome: _Outcome) -> bool:
        """Whether all that the pods need is there."""
        uid, generation = cluster.metadata.uid, cluster.metadata.generation
        attempt = self._attempts.of(uid, generation).get(CHILDREN)
        if attempt is None or attempt.not_before <= self._parts.now():
            children = [*wanted.children, *self._certificates(cluster, wanted)]
            shown = partial(self._caches.child, cluster)
            refused = await self._children.reconcile(cluster, children, self._caches.children_of(cluster), shown)
            if refused is None:
                self._attempts.succeeded(uid, CHILDREN)
                held = self._caches.children_of(cluster)
                autoscaler_runs = any(runs_autoscaler(pod) for pod in self._caches.pods_of(cluster))
                await self._children.remove_surplus(wanted.context, children, held, autoscaler_runs=autoscaler_runs)
                return True
            reason, message = refused
            self._events.warning(cluster, reason, message, action="Create")
            self._attempts.failed(uid, CHILDREN, "", message, generation=generation, now=self._parts.now())
            attempt = self._attempts.of(uid, generation)[CHILDREN]
        outcome.error = attempt.message
        outcome.again_at(attempt.not_before)
        return False

    def _certificates(self, cluster: RayCluster, wanted: Desired) -> list[Child]:
        pods = [pod for pod in self._caches.pods_of(cluster) if not pod.ended]
        return certificate_children(
            wanted.context,
            sorted(pod.status.pod_ip for pod in pods if pod.is_head and pod.status.pod_ip),
            sorted(pod.status.pod_ip for pod in pods if not pod.is_head and pod.status.pod_ip),
        )

    def _head_service(self, cluster: RayCluster) -> OwnedService | None:
        name = ClusterContext(cluster=cluster, options=self._options).head_service_name
        return self._caches.service(cluster, name)

    async def _write_status(self, cluster: RayCluster, wanted: Desired, memory: _Memory, outcome: _Outcome) -> None:
        now = self._parts.now()
        status = cluster_status(
            StatusSnapshot(
                cluster=cluster,
                pods=self._caches.pods_of(cluster),
                head_service=self._head_service(cluster),
                gpus=wanted.gpus,
                failure=self._pods.failure(cluster),
                problem=wanted.problem,
                problem_reason=wanted.problems[0].reason if wanted.problems else "",
                error=outcome.error,
                waiting={**wanted.waiting, **self._pods.waiting(cluster), **self._gang.waiting(cluster.key)},
                capacity=capacity(cluster, self._parts.gpus.current, self._largest.units),
                now=now,
            )
        )
        self._tell_capacity(cluster, status, memory)
        if not differs(cluster.status, status):
            return
        if memory.written_at is not None and now < memory.written_at + STATUS_INTERVAL:
            outcome.again_at(memory.written_at + STATUS_INTERVAL)
            return
        written = await write_status(self._client, cluster, status)
        memory.written_at = now
        if is_suspended(written) != is_suspended(cluster):
            outcome.again_at(now)  # A suspension has ended: it may have been taken back meanwhile.

    def _tell_capacity(self, cluster: RayCluster, status: RayClusterStatus, memory: _Memory) -> None:
        said = find(status.conditions, ClusterCondition.CAPACITY)
        held = find(cluster.status.conditions, ClusterCondition.CAPACITY)
        if said is not None and said.status == FALSE and (held is None or held.message != said.message):
            self._warn(memory, cluster, ClusterEvent.CAPACITY, [said.message])

    def _warn(self, memory: _Memory, cluster: RayCluster, reason: str, notes: Iterable[str]) -> None:
        """Say what is new in it since this reason was given last."""
        told = memory.said.get(reason, frozenset())
        memory.said[reason] = frozenset(notes)
        for note in memory.said[reason] - told:
            self._events.warning(cluster, reason, note, action="Validate")

    async def _report_other_operator(self, cluster: RayCluster, who: str) -> None:
        """Write that another operator is active, and nothing else."""
        held, kind = cluster.status.conditions, ClusterCondition.OTHER_OPERATOR_ACTIVE
        generation, note = cluster.metadata.generation, f"KubeRay's operator is active: {who}"
        said = condition(
            held, kind, True, ClusterReason.OTHER_OPERATOR, note, generation=generation, now=self._parts.now()
        )
        if said != find(held, kind):
            others = tuple(each for each in held if each.type != kind)
            await write_status(self._client, cluster, replace(cluster.status, conditions=(*others, said)))


def _matters(old: RayCluster | None, new: RayCluster | None) -> bool:
    """Whether a change is another's: the status is written here alone."""
    if old is None or new is None:
        return True
    return _read_of(old) != _read_of(new)


def _read_of(cluster: RayCluster) -> tuple[Any, ...]:
    metadata = cluster.metadata
    return (
        metadata.uid,
        metadata.generation,
        metadata.labels,
        metadata.annotations,
        metadata.finalizers,
        metadata.deletion_timestamp,
    )


def _resources(cluster: RayCluster) -> Iterable[str]:
    templates = (cluster.spec.head_group_spec.template, *(g.template for g in cluster.spec.worker_group_specs))
    return {resource for template in templates for resource in pod_units(template)}


def _facts_changed(old: GPUPool | None, new: GPUPool | None) -> bool:
    """Whether a change of a pool can matter to a cluster, beside what is free at the moment."""
    return old is None or new is None or PoolFacts.of(old) != PoolFacts.of(new)
