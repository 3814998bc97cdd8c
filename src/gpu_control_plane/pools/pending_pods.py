"""Tells pods that wait for a card why, by Events: once for each cause, however often pools change.

What was told is in the Events themselves. A new leader reads them once, so that a restart tells no pod anything twice.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.rate_limit import RateLimit
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.pools.events import record_pending
from gpu_control_plane.pools.explain.explanation import Cause, Explanation
from gpu_control_plane.pools.explain.pod import explain_pod
from gpu_control_plane.pools.explain.snapshot import PodSnapshot, PoolView
from gpu_control_plane.pools.explanation_reads import UNSCHEDULED, read_told
from gpu_control_plane.pools.resource_index import RESOURCE, index_resources
from gpu_control_plane.pools.snapshot import Settings

_NOT_COUNTED_SECONDS: Final = 1.0
"""When a pod is looked at again whose pool has not been counted yet."""
_LONGEST_SILENCE: Final = timedelta(minutes=5)


class Told(msgspec.Struct, frozen=True):
    """The last Event that a pod got."""

    action: str
    at: datetime
    times: int = 1
    """How many Events it has got."""


def silence(found: Explanation, told: Told, now: datetime, settings: Settings) -> timedelta:
    """How long a pod that was told something is not told this. Another cause is told soon, but each time later, so that
    one which changes to and fro does not become a flood of Events; the same cause only before its Event expires."""
    if told.action == found.action:
        wait = settings.pending_pod_repeat_after
    else:
        wait = min(settings.pending_pod_interval * 2 ** min(told.times - 1, 16), _LONGEST_SILENCE)
    return max(told.at + wait - now, timedelta())


def told_before(events: Iterable[Event], pods: Iterable[WaitingPod], now: datetime) -> dict[str, Told]:
    """What these pods were told, by their uid, according to Events from the oldest to the latest.

    Whoever may write Events in a namespace may write them about the uid of a pod elsewhere, or with a time to come:
    only those beside the pod count, and none is later than now.
    """
    waiting = {(pod.metadata.namespace, pod.metadata.uid) for pod in pods}
    told: dict[str, Told] = {}
    for event in events:
        uid = event.regarding.uid if event.regarding is not None else ""
        if (event.metadata.namespace, uid) in waiting:
            times = told[uid].times + 1 if uid in told else 1
            told[uid] = Told(event.action, min(event.seen_at, now), times)
    return told


class PendingPods:
    """The controller that explains pods without a node."""

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        view: Callable[[GPUPool], PoolView | None],
        now: Callable[[], datetime],
    ) -> None:
        """`view` gives a pool as an explanation needs it; None while it has not been counted."""
        self._runtime = runtime
        self._settings = settings
        self._view = view
        self._clock = now
        self._pools = runtime.cache(GPUPool)
        self._nodes = runtime.cache(Node)
        self._states = runtime.cache(GPUNodeState)
        self._pods = runtime.cache(WaitingPod, UNSCHEDULED)
        self._rate = RateLimit(settings.pending_pod_interval.total_seconds())
        self._told: dict[str, Told] = {}
        self._uncertain: dict[str, str] = {}
        """What was found of a pod, by its uid, that may be over in a moment: it is told if it is still so later."""
        self._found: dict[bytes, Explanation | None] = {}
        self._found_until = now()
        self._events_read = False
        self._reading = asyncio.Lock()

    def start(self) -> None:
        index_resources(self._pools, self._pods)
        self._pods.on_change(self._forget)
        self._runtime.on_lead(self._forget_all)
        controller = self._runtime.controller("pools-waiting", self._reconcile)
        controller.watch(self._pods, when=lambda _old, new: new is not None and new.unschedulable)
        controller.watch(self._pools, self._waiting_for)

    def _waiting_for(self, pool: GPUPool) -> Iterable[Key]:
        return (pod.key for name in pool.resource_names for pod in self._pods.by_index(RESOURCE, name))

    def _resources(self) -> set[str]:
        return {name for pool in self._pools for name in pool.resource_names}

    def _forget(self, old: WaitingPod | None, new: WaitingPod | None) -> None:
        if old is not None and new is None:
            self._rate.forget(old.key)
            self._told.pop(old.metadata.uid, None)
            self._uncertain.pop(old.metadata.uid, None)

    def _forget_all(self) -> None:
        self._told.clear()
        self._events_read = False

    async def _reconcile(self, key: Key) -> Requeue | None:
        pod = self._pods.at(key)
        if pod is None or not pod.unschedulable:
            return None
        asked = pod.extended_resources
        pools = {name: found[0] for name in asked if (found := self._pools.by_index(RESOURCE, name))}
        if not pools and not any(name.startswith(f"{GROUP}/") for name in asked):
            return None
        created = pod.metadata.creation_timestamp
        left = created + self._settings.pending_pod_hint_after - self._clock() if created else timedelta()
        if left > timedelta():
            return Requeue(after=left.total_seconds())
        if later := self._rate.wait(key):
            return later
        views = {name: view for name, pool in pools.items() if (view := self._view(pool)) is not None}
        if len(views) < len(pools):
            return Requeue(after=_NOT_COUNTED_SECONDS)
        self._rate.mark(key)
        explanation = self._explain(pod, views)
        return await self._tell(pod, explanation) if explanation is not None else None

    def _explain(self, pod: WaitingPod, views: Mapping[str, PoolView]) -> Explanation | None:
        """Pods of one workload wait for the same reason: it is found once for all of them."""
        now = self._clock()
        if now >= self._found_until:
            self._found.clear()
            self._found_until = now + self._settings.pending_pod_interval
        scheduled = pod.condition("PodScheduled")
        alike = msgspec.json.encode((pod.spec, scheduled.reason, scheduled.message) if scheduled else pod.spec)
        if alike not in self._found:
            found = explain_pod(
                PodSnapshot(
                    pod=pod, pools=views, resources=self._resources, node=self._nodes.get, state=self._states.get
                )
            )
            # Who holds a pod back on purpose, such as a queue for jobs, says so itself.
            self._found[alike] = None if found is not None and found.cause is Cause.GATED else found
        return self._found[alike]

    async def _tell(self, pod: WaitingPod, found: Explanation) -> Requeue | None:
        await self._read_events()
        uid, now = pod.metadata.uid, self._clock()
        told = self._told.get(uid)
        if told is not None and (left := silence(found, told, now, self._settings)):
            return Requeue(after=left.total_seconds())
        if not found.certain and self._uncertain.get(uid) != found.action:
            self._uncertain[uid] = found.action
            return Requeue(after=self._settings.pending_pod_interval.total_seconds())
        self._uncertain.pop(uid, None)
        self._told[uid] = Told(found.action, now, told.times + 1 if told is not None else 1)
        record_pending(self._runtime.events, pod, found)
        return Requeue(after=self._settings.pending_pod_repeat_after.total_seconds())

    async def _read_events(self) -> None:
        """Learn what the pods that wait were told by whoever led before. One list, and only where a pod waits."""
        async with self._reading:
            if self._events_read:
                return
            self._told |= told_before(await read_told(self._runtime.client), self._pods, self._clock())
            self._events_read = True
