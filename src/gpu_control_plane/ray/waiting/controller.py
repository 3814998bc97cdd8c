"""Events about what has waited for long: one each time it begins to wait.

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
from gpu_control_plane.kube.objects import Key, Object, controller_of
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.owned import RayPod
from gpu_control_plane.ray.waiting.decide import group_why
from gpu_control_plane.ray.waiting.events import WaitingEvent
from gpu_control_plane.ray.waiting.lookup import WaitingLookup
from gpu_control_plane.ray.watched import Watched


class Overdue(msgspec.Struct, frozen=True):
    """Something that has an Event when it has lasted: what waits, since when, the reason of the Event, and why."""

    what: str
    since: datetime
    reason: WaitingEvent
    why: str


def build(components: RayComponents, lookup: WaitingLookup) -> None:
    """Add the three controllers to the process."""
    clusters = _OverdueController(components, "ray-waiting-clusters", lookup.clusters, partial(of_cluster, lookup))
    clusters.watch_also(lookup.pods, _cluster_of)
    _OverdueController(components, "ray-waiting-jobs", lookup.jobs, partial(of_job, lookup))
    _OverdueController(components, "ray-waiting-services", lookup.services, partial(of_service, lookup))


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


def record_overdue(
    recorder: EventRecorder, item: Object, found: Iterable[Overdue], recorded: Mapping[str, datetime], due: datetime
) -> dict[str, datetime]:
    """Record what has waited since `due` or longer and was not recorded yet; what has been recorded by now, by what
    waits and since when."""
    kept: dict[str, datetime] = {}
    for each in found:
        if each.since > due:
            continue
        kept[each.what] = each.since
        if recorded.get(each.what) != each.since:
            recorder.warning(item, each.reason, each.why)
    return kept


class _OverdueController[T: Object]:
    """Records what is overdue among the objects of one kind, and remembers what it has recorded."""

    def __init__(
        self, components: RayComponents, name: str, items: Watched[T], find: Callable[[T], Iterable[Overdue]]
    ) -> None:
        self._components = components
        self._events = components.runtime.events
        self._items = items
        self._find = find
        self._recorded: dict[Key, dict[str, datetime]] = {}
        components.runtime.on_lead(self._recorded.clear)
        self._controller = components.runtime.controller(name, self._reconcile, workers=1)
        items.watch(self._controller)
        self._controller.watch(components.lease.changed, lambda _fired: (item.key for item in items))

    def watch_also(self, pods: Watched[RayPod], concerns: Callable[[RayPod], Iterable[Key]]) -> None:
        pods.watch(self._controller, concerns, when=_moved)

    async def _reconcile(self, key: Key) -> Requeue | None:
        item = self._items.at(key)
        if item is None or self._components.lease.active() is not None:
            self._recorded.pop(key, None)
            return None
        hint_after, now = self._components.settings.waiting_hint_after, self._components.now()
        found = tuple(self._find(item))
        recorded = record_overdue(self._events, item, found, self._recorded.get(key, {}), now - hint_after)
        if recorded:
            self._recorded[key] = recorded
        else:
            self._recorded.pop(key, None)
        later = [each.since + hint_after - now for each in found if each.what not in recorded]
        return Requeue(after=max(min(later).total_seconds(), 0.01)) if later else None


def _cluster_of(pod: RayPod) -> Iterable[Key]:
    owner = controller_of(pod)
    return (Key(owner.name, pod.metadata.namespace),) if owner is not None and owner.kind == "RayCluster" else ()


def _moved(old: RayPod | None, new: RayPod | None) -> bool:
    """Whether a pod has come or gone, or has got its node."""
    return old is None or new is None or (old.spec.node_name, old.deleting) != (new.spec.node_name, new.deleting)
