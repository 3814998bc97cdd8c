"""Takes the scheduling gates of workers away, group by group: the one controller that looks at all groups together.

It has one worker, so that no unit of a pool is counted on twice.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.ray.cluster import RayCluster, WorkerGroupSpec
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.objects import Key, controller_of
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.kube.signal import Signal
from gpu_control_plane.ray.cluster.caches import ClusterCaches, owning_cluster
from gpu_control_plane.ray.cluster.desired import start_together, wants_gang
from gpu_control_plane.ray.cluster.events import ClusterEvent
from gpu_control_plane.ray.cluster.pod_state import GANG_GATE, finds_no_room, is_gated, is_worker, made, replica_name
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.gang import GangGroup, GangPlan, GatedPod, PoolUnits, Release, plan_releases
from gpu_control_plane.ray.owned import RayPod, is_owned
from gpu_control_plane.ray.pool_demand import Largest
from gpu_control_plane.rules.ray.amounts import pod_devices
from gpu_control_plane.rules.ray.gpus import PoolResources

UNSETTLED_FOR: Final = timedelta(seconds=10)
"""How long a pool may take to count a pod that was released, or has got a node, as one that holds its units."""
_INTERVAL_SECONDS: Final = 0.2
"""Between two looks at all groups, so that many changes at once cost one."""
_ALL: Final = Key("groups")
_GATED: Final = "ray/gated"
_BY_GROUP: Final = "ray/group"


class GangController:
    """Releases the workers of a group together, and says what each group waits for."""

    def __init__(self, parts: RayComponents, caches: ClusterCaches, largest: Largest) -> None:
        self._parts = parts
        self._largest = largest
        self._caches = caches
        self._client = parts.runtime.client
        self._unsettled = UnsettledPods(parts.now)
        self._waiting: dict[Key, dict[str, str]] = {}
        self._announced: set[tuple[str, str]] = set()
        self.changed = Signal("ray-gang")
        """Fires the key of a RayCluster when what its groups wait for has changed."""
        caches.pods.index(_GATED, lambda pod: ("yes",) if is_gated(pod) and not pod.deleting else ())
        caches.pods.index(_BY_GROUP, _group_keys)
        caches.pods.on_change(self._unsettled.changed)
        self._next_look = 0.0
        controller = parts.runtime.controller("ray-gang", self._reconcile, workers=1)
        caches.pods.watch(controller, lambda _pod: (_ALL,), self._matters)
        caches.clusters.watch(controller, lambda _cluster: (_ALL,), _spec_changed)
        controller.watch(parts.pools, lambda _pool: (_ALL,), _capacity_changed)
        controller.watch(parts.lease.changed, lambda _fired: (_ALL,))
        parts.runtime.on_lead(self._announced.clear)

    def waiting(self, cluster: Key) -> Mapping[str, str]:
        """What groups of a cluster wait for, by group."""
        return self._waiting.get(cluster, {})

    async def _reconcile(self, _key: Key) -> Requeue | None:
        if self._parts.lease.active() is not None:
            return None
        tick = asyncio.get_running_loop().time()
        if tick < self._next_look:
            return Requeue(self._next_look - tick)
        self._next_look = tick + _INTERVAL_SECONDS
        now = self._parts.now()
        groups = self._groups()
        pool_units = self._pool_units(now)
        plan = plan_releases(groups, pool_units, now=now, patience=self._parts.settings.gang_patience)
        self._tell(plan)
        await gather_all(self._release(release) for release in plan.releases)
        due = [moment for moment in (plan.again_at, self._unsettled.next_end if plan.waits else None) if moment]
        return Requeue(max((min(due) - now).total_seconds(), 0.1)) if due else None

    def _groups(self) -> list[GangGroup]:
        """The groups of which some pods wait."""
        gated: dict[tuple[Key, str], list[RayPod]] = defaultdict(list)
        for pod in self._caches.pods.by_index(_GATED, "yes"):
            for key in owning_cluster(pod):
                gated[key, pod.group].append(pod)
        found = []
        for (key, name), pods in gated.items():
            cluster = self._caches.clusters.at(key)
            own = [pod for pod in pods if cluster is not None and is_owned(pod, cluster)]
            if cluster is not None and own and not cluster.deleting:
                found.append(self._group(cluster, name, own))
        return found

    def _group(self, cluster: RayCluster, name: str, gated: list[RayPod]) -> GangGroup:
        pools = self._parts.gpus.current
        spec = next((group for group in cluster.spec.worker_group_specs if group.group_name == name), None)
        members = self._caches.pods.by_index(_BY_GROUP, _group_key(cluster.metadata.uid, name))
        released = (
            pod
            for pod in members
            if is_owned(pod, cluster) and not is_gated(pod) and not pod.deleting and not pod.ended
        )
        return GangGroup(
            cluster=cluster.key,
            name=name,
            gated=tuple(
                GatedPod(name=pod.name, created=made(pod), units=units_of(pod, pools), replica=replica_name(pod))
                for pod in gated
            ),
            together=self._together(cluster, spec, pools),
            hosts=max(1, spec.num_of_hosts) if spec is not None else 1,
            released=frozenset(replica_name(pod) or pod.name for pod in released),
        )

    def _together(self, cluster: RayCluster, group: WorkerGroupSpec | None, pools: PoolResources) -> int:
        if group is None or not wants_gang(cluster, by_default=self._parts.settings.options.gang):
            return 0
        return start_together(cluster, group, pools)

    def _pool_units(self, now: datetime) -> PoolUnits:
        available: dict[str, int] = {}
        total: dict[str, int] = {}
        for pool in self._parts.pools:
            for capacity in pool.status.capacity:
                available[capacity.name] = capacity.available
                total[capacity.name] = capacity.total
        for resource, units in self._unsettled.units(now, self._parts.gpus.current, self._largest).items():
            available[resource] = available.get(resource, 0) - units
        return PoolUnits(available=available, total=total)

    async def _release(self, release: Release) -> None:
        namespace = release.cluster.namespace
        pods = [pod for name in release.pods if (pod := self._caches.pods.get(name, namespace)) is not None]

        async def open_gate(pod: RayPod) -> None:
            gates = [{"name": gate.name} for gate in pod.spec.scheduling_gates if gate.name != GANG_GATE]
            body = {"spec": {"schedulingGates": gates or None}}
            version = pod.metadata.resource_version
            try:
                await self._client.patch(RayPod, pod.name, body, namespace=namespace, resource_version=version)
            except NotFound:
                return

        await gather_all(open_gate(pod) for pod in pods)
        cluster = self._caches.clusters.at(release.cluster)
        if cluster is not None:
            units = " and ".join(f"{counted(count, 'unit')} of {name}" for name, count in sorted(release.units.items()))
            held = f": {units} are free" if units else ""
            note = f"{counted(len(release.pods), 'worker')} of group {release.group} may start{held}"
            self._parts.runtime.events.normal(cluster, ClusterEvent.RELEASED, note)

    def _tell(self, plan: GangPlan) -> None:
        """Say what groups wait for: in the condition of their cluster, and once in an Event."""
        before, self._waiting = self._waiting, {}
        for (key, group), wait in plan.waits.items():
            self._waiting.setdefault(key, {})[group] = wait.sentence
            cluster = self._caches.clusters.at(key)
            told = (cluster.metadata.uid, f"{group}: {wait.sentence}") if cluster is not None else ("", "")
            if cluster is not None and told not in self._announced and not wait.pods:
                self._announced.add(told)
                note = f"group {group} waits: {wait.sentence}"
                self._parts.runtime.events.normal(cluster, ClusterEvent.WAITING, note)
        live = {uid for uid, _ in self._announced} & {
            c.metadata.uid for k in self._waiting if (c := self._caches.clusters.at(k))
        }
        self._announced = {told for told in self._announced if told[0] in live}
        changed = [key for key in before.keys() | self._waiting.keys() if before.get(key) != self._waiting.get(key)]
        if changed:
            self.changed.fire(*changed)

    def _matters(self, old: RayPod | None, new: RayPod | None) -> bool:
        """Whether a change of a pod may release something: of one that waits, or of the rest of such a group."""
        item = new or old
        if item is None or not is_worker(item):
            return False
        if any(pod is not None and is_gated(pod) for pod in (old, new)):
            return True
        return bool(self._waiting) and (
            old is None or new is None or old.ended != new.ended or old.deleting != new.deleting
        )


class UnsettledPods:
    """Pods that may be scheduled, and that the status of their pool may not count yet.

    A pool counts a pod that waits for a node as a promise, and one that runs by what the node reports. Each takes a
    moment. Until then its units look free. What no node has room for, as the scheduler says or by its size alone, takes
    none: whoever may create pods could otherwise keep all groups waiting.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._pods: dict[str, _Unsettled] = {}

    def changed(self, old: RayPod | None, new: RayPod | None) -> None:
        """A pod has come, changed or gone; in the shape of `Cache.on_change`."""
        if new is None or new.deleting or new.ended:
            if (gone := new or old) is not None:
                self._pods.pop(gone.metadata.uid, None)
            return
        if is_gated(new) or not _asks_for_devices(new):
            return
        if finds_no_room(new):
            self._pods.pop(new.metadata.uid, None)
            return
        bound = bool(new.spec.node_name)
        was_open = old is not None and not is_gated(old)
        if not (was_open and old is not None and bool(old.spec.node_name) == bound):
            self._pods[new.metadata.uid] = _Unsettled(new, self._now() + UNSETTLED_FOR)

    def units(self, now: datetime, pools: PoolResources, largest: Largest) -> dict[str, int]:
        """What they ask of pools, by resource."""
        self._pods = {uid: held for uid, held in self._pods.items() if held.until > now}
        total: dict[str, int] = defaultdict(int)
        for held in self._pods.values():
            asked = units_of(held.pod, pools)
            if any(units > (largest(resource) or units) for resource, units in asked.items()):
                continue
            for resource, units in asked.items():
                total[resource] += units
        return dict(total)

    @property
    def next_end(self) -> datetime | None:
        return min((held.until for held in self._pods.values()), default=None)


class _Unsettled(msgspec.Struct, frozen=True):
    pod: RayPod
    until: datetime


def units_of(pod: RayPod, pools: PoolResources) -> dict[str, int]:
    """The units that a pod asks of pools, by resource."""
    asked = pod_devices(msgspec.to_builtins(pod.spec))
    return {resource: units for resource, units in asked.items() if pools.pool(resource) is not None}


def _asks_for_devices(pod: RayPod) -> bool:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any("/" in resource for container in containers for resource in container.resources.limits)


def _group_keys(pod: RayPod) -> Iterable[str]:
    owner = controller_of(pod)
    return (_group_key(owner.uid, pod.group),) if owner is not None and is_worker(pod) else ()


def _group_key(uid: str, group: str) -> str:
    return f"{uid}/{group}"


def _spec_changed(old: RayCluster | None, new: RayCluster | None) -> bool:
    return old is not None and (
        new is None or old.metadata.generation != new.metadata.generation or old.metadata.labels != new.metadata.labels
    )


def _capacity_changed(old: GPUPool | None, new: GPUPool | None) -> bool:
    return old is None or new is None or old.status.capacity != new.status.capacity or old.spec != new.spec
