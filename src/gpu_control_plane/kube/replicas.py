"""Tells when replicas of the process's own Deployment are missing: the leader, who is there, speaks for those who are
not. What is not deployed so, such as a process on a developer's machine, has no Deployment and nothing to tell."""

from collections.abc import Callable
from datetime import datetime
from typing import ClassVar

import msgspec

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.events import EventRecorder
from gpu_control_plane.kube.objects import Key, Object, Resource
from gpu_control_plane.kube.process_events import REPLICAS_HOLD, ProcessEvent
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.times import utc_now


class _Spec(msgspec.Struct, frozen=True):
    replicas: int = 1


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    available_replicas: int = 0


class Deployment(Object, frozen=True):
    """How many replicas there should be, and how many are available."""

    resource: ClassVar[Resource] = Resource("apps", "v1", "Deployment", "deployments")

    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def missing(self) -> int:
        return max(self.spec.replicas - self.status.available_replicas, 0)


def watch_replicas(runtime: Runtime, deployment: Key, *, now: Callable[[], datetime] = utc_now) -> None:
    """Have the leader watch the Deployment that it is a replica of."""
    selection = Selection(deployment.namespace, fields=f"metadata.name={deployment.name}")
    deployments = runtime.cache(Deployment, selection)
    replicas = Replicas(deployments, runtime.events, now)
    runtime.controller("replicas", replicas.reconcile, workers=1).watch(deployments)
    runtime.on_lead(replicas.forget)


class Replicas:
    """Remembers since when replicas are missing, and whether that was told."""

    def __init__(self, deployments: Cache[Deployment], events: EventRecorder, now: Callable[[], datetime]) -> None:
        self._deployments = deployments
        self._events = events
        self._now = now
        self._since: datetime | None = None
        self._told = False

    def forget(self) -> None:
        self._since, self._told = None, False

    async def reconcile(self, key: Key) -> Requeue | None:
        deployment = self._deployments.at(key)
        if deployment is None or not deployment.missing:
            self.forget()
            return None
        self._since = self._since or self._now()
        left = self._since + REPLICAS_HOLD - self._now()
        if left.total_seconds() > 0:
            return Requeue(after=left.total_seconds())
        if not self._told:
            self._told = True
            note = (
                f"{deployment.missing} of {deployment.spec.replicas} replicas have been missing for "
                f"{REPLICAS_HOLD.total_seconds() / 60:.0f} minutes. The next failure may leave nobody to lead."
            )
            self._events.warning(deployment, ProcessEvent.REPLICAS_MISSING, note, action="Watch")
        return None
