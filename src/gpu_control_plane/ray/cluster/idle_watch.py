"""Asks dashboards whether clusters that may not be idle for long have work, and suspends those that have none."""

from datetime import datetime, timedelta
from typing import Final

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.ray.cluster.caches import ClusterCaches
from gpu_control_plane.ray.cluster.events import ClusterEvent
from gpu_control_plane.ray.cluster.idleness import Idleness, idle_timeout, idleness
from gpu_control_plane.ray.cluster.pod_plan import is_suspended
from gpu_control_plane.ray.dashboard.models import Activity
from gpu_control_plane.ray.owned import OwnedService
from gpu_control_plane.ray.parts import RayParts

_ASK_SECONDS: Final = 30.0
_ACTIVITY: Final = "activity"


class IdleWatch:
    """Whether clusters are idle, as their dashboards say."""

    def __init__(self, parts: RayParts, caches: ClusterCaches) -> None:
        self._parts = parts
        self._caches = caches
        self._calls = parts.calls.for_controller("ray-cluster-dashboards")
        self.changed = self._calls.signal
        """Fires the key of a cluster whose dashboard answers differently than before."""
        self._seen_at_work: set[Key] = set()
        parts.runtime.on_lead(self._calls.forget_all)
        parts.runtime.on_lead(self._seen_at_work.clear)

    def look(self, cluster: RayCluster, service: OwnedService | None) -> Idleness:
        """Whether the cluster is to be suspended, or when to look again."""
        timeout = idle_timeout(cluster)
        if timeout is None or is_suspended(cluster):
            self.forget(cluster.key)
            return Idleness(since=None)

        async def activity() -> Activity:
            return await self._parts.dashboard.activity(await self._parts.access.target(cluster, service))

        answer = self._calls.ask(cluster.key, _ACTIVITY, activity, every=_ASK_SECONDS)
        if answer is None:
            return Idleness(since=None)
        if answer.value is not None and answer.value.active:
            self._seen_at_work.add(cluster.key)
        worked_until = answer.since if cluster.key in self._seen_at_work else None
        now = self._parts.now()
        return idleness(cluster, timeout, answer.value, asked_at=answer.at, worked_until=worked_until, now=now)

    async def suspend(self, cluster: RayCluster) -> None:
        """Suspend it; `Conflict` if somebody has changed it since. A write of `spec.suspend` resumes it."""
        await self._parts.runtime.client.patch(
            RayCluster,
            cluster.name,
            {"spec": {"suspend": True}},
            resource_version=cluster.metadata.resource_version,
            namespace=cluster.metadata.namespace,
        )
        text = cluster.metadata.annotations.get(Annotation.IDLE_TIMEOUT, "")
        note = f"suspended, since it had no work for {text}. To resume it, set spec.suspend to false"
        self._parts.runtime.events.normal(cluster, ClusterEvent.SUSPENDED_IDLE, note, action="Suspend")

    def forget(self, cluster: Key) -> None:
        self._calls.forget(cluster)
        self._seen_at_work.discard(cluster)


def next_look(found: Idleness, now: datetime) -> datetime | None:
    """When to look again: its time may be over before the dashboard has been asked after it."""
    return max(found.again_at, now) + timedelta(seconds=_ASK_SECONDS / 10) if found.again_at is not None else None
