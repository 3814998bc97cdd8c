"""Tells of what has waited for long, by Events: once each time it begins to wait.

Pods that wait for cards are told why by the controller of pools; this is about the cluster, the job and the service
that wait because of them, or of something else. Alerts fire for the same.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.events import EventRecorder
from gpu_control_plane.kube.objects import Key, Object
from gpu_control_plane.ray.owned import RayPod, controller_of
from gpu_control_plane.ray.parts import RayParts
from gpu_control_plane.ray.waiting.decide import group_why
from gpu_control_plane.ray.waiting.events import WaitingEvent
from gpu_control_plane.ray.waiting.lookup import WaitingLookup
from gpu_control_plane.ray.watched import Watched


class Overdue(msgspec.Struct, frozen=True):
    """Something to tell of when it has lasted: what waits, since when, the reason of the Event, and why."""

    what: str
    since: datetime
    reason: WaitingEvent
    why: str


def build(parts: RayParts, lookup: WaitingLookup) -> None:
    """Add the three controllers to the process."""
    clusters = _Told(parts, "ray-waiting-clusters", lookup.clusters, partial(of_cluster, lookup))
    clusters.watch_also(lookup.pods, _cluster_of)
    _Told(parts, "ray-waiting-jobs", lookup.jobs, partial(of_job, lookup))
    _Told(parts, "ray-waiting-services", lookup.services, partial(of_service, lookup))


def of_cluster(lookup: WaitingLookup, cluster: RayCluster) -> Iterable[Overdue]:
    """Its groups that wait for cards."""
    for group in lookup.of_cluster(cluster).values():
        if group.since is not None:
            why = group_why(group, cluster.metadata.namespace or "")
            yield Overdue(group.group, group.since, WaitingEvent.WORKERS, why)


def of_job(lookup: WaitingLookup, job: RayJob) -> Iterable[Overdue]:
    """The job itself, if it waits."""
    if (found := lookup.of_job(job)) is not None:
        yield Overdue("job", found.since, WaitingEvent.JOB, f"It does not run: {found.why}")


def of_service(lookup: WaitingLookup, service: RayService) -> Iterable[Overdue]:
    """The service itself, if it does not answer."""
    if (found := lookup.of_service(service)) is not None:
        yield Overdue("service", found.since, WaitingEvent.SERVICE, f"It answers no requests: {found.why}")


def tell_overdue(
    recorder: EventRecorder, item: Object, found: Iterable[Overdue], told: Mapping[str, datetime], due: datetime
) -> dict[str, datetime]:
    """Record what has waited since `due` or longer and was not told yet; what has been told by now, by what waits and
    since when."""
    kept: dict[str, datetime] = {}
    for each in found:
        if each.since > due:
            continue
        kept[each.what] = each.since
        if told.get(each.what) != each.since:
            recorder.warning(item, each.reason, each.why)
    return kept


class _Told[T: Object]:
    """Of one kind, what has been told."""

    def __init__(self, parts: RayParts, name: str, items: Watched[T], find: Callable[[T], Iterable[Overdue]]) -> None:
        self._parts = parts
        self._items = items
        self._find = find
        self._told: dict[Key, dict[str, datetime]] = {}
        parts.runtime.on_lead(self._told.clear)
        self._controller = parts.runtime.controller(name, self._reconcile, workers=1)
        items.watch(self._controller)
        self._controller.watch(parts.lease.changed, lambda _fired: (item.key for item in items))

    def watch_also(self, pods: Watched[RayPod], concerns: Callable[[RayPod], Iterable[Key]]) -> None:
        pods.watch(self._controller, concerns, when=_moved)

    async def _reconcile(self, key: Key) -> Requeue | None:
        item = self._items.at(key)
        if item is None or self._parts.lease.active() is not None:
            self._told.pop(key, None)
            return None
        patience, now = self._parts.settings.waiting_hint_after, self._parts.now()
        found = tuple(self._find(item))
        told = tell_overdue(self._parts.runtime.events, item, found, self._told.get(key, {}), now - patience)
        if told:
            self._told[key] = told
        else:
            self._told.pop(key, None)
        later = [each.since + patience - now for each in found if each.what not in told]
        return Requeue(after=max(min(later).total_seconds(), 0.01)) if later else None


def _cluster_of(pod: RayPod) -> Iterable[Key]:
    owner = controller_of(pod)
    return (Key(owner.name, pod.metadata.namespace),) if owner is not None and owner.kind == "RayCluster" else ()


def _moved(old: RayPod | None, new: RayPod | None) -> bool:
    """Whether a pod has come or gone, or has got its node."""
    return old is None or new is None or (old.spec.node_name, old.deleting) != (new.spec.node_name, new.deleting)
