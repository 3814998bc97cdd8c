"""Which workers of Ray may be scheduled: those of a group that need cards of pools start together. Pure.

A worker that waits for the rest of its group carries a scheduling gate, so that it holds no card. The gates of a group
are taken away when its pools have the units for all the pods that the group needs at least. From then on nothing of
the group waits for the others any more: a pod that is made anew must not wait, and a release that was cut short by the
end of the process is carried to its end. That a group runs is told by its pods alone, so there is nothing to forget.

Clusters go by age, and the groups of one after another: two clusters that got one of two groups each would both wait
for good. A younger group that fits may pass an older one that does not, for a while: then the older one keeps what is
free. A group that its pools could never serve keeps nobody waiting.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.sentences import counted

Units = Mapping[str, int]
"""Units by resource."""


class GatedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that waits."""

    name: str
    created: datetime
    units: Units
    """What it asks of pools."""
    replica: str = ""
    """Which of the replicas with several hosts it is of."""


class GangGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of workers of which some wait."""

    cluster: Key
    name: str
    gated: tuple[GatedPod, ...]
    together: int
    """How many pods have to start at once; up to one if none waits for another any more."""
    hosts: int = 1
    released: frozenset[str] = frozenset()
    """The replicas of pods that may be scheduled already; names of pods, where a replica is one pod."""

    @property
    def since(self) -> datetime:
        return min(pod.created for pod in self.gated)


class PoolUnits(msgspec.Struct, frozen=True, kw_only=True):
    """The units of pools, by resource."""

    available: Units
    total: Units


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What a group waits for."""

    units: Units = {}
    """What has to be free at once."""
    pods: int = 0
    """Of its pods, how many are missing before anything can be released."""
    impossible: bool = False
    """Whether its pools do not have so much, even if all were free."""

    @property
    def sentence(self) -> str:
        if self.pods:
            return f"it starts when {counted(self.pods, 'more pod')} of it could be created"
        needs = " and ".join(f"{counted(count, 'unit')} of {name}" for name, count in sorted(self.units.items()))
        if self.impossible:
            return f"it needs {needs} at once, and there are not so many"
        return f"it starts when {needs} are free at once"


class Release(msgspec.Struct, frozen=True):
    """Pods that may be scheduled from now on."""

    cluster: Key
    group: str
    pods: tuple[str, ...]
    units: Units


class GangPlan(msgspec.Struct, frozen=True, kw_only=True):
    releases: tuple[Release, ...] = ()
    waits: Mapping[tuple[Key, str], Wait] = {}
    """What waits, by cluster and group."""
    again_at: datetime | None = None
    """When an older group stops to let younger ones pass."""


def plan_releases(
    groups: Iterable[GangGroup], pool_units: PoolUnits, *, now: datetime, patience: timedelta
) -> GangPlan:
    """Who may start, given what is free; `patience` is how long a group lets younger ones pass."""
    left = defaultdict(int, pool_units.available)
    releases: list[Release] = []
    waits: dict[tuple[Key, str], Wait] = {}
    deadlines: list[datetime] = []
    waiting = list(groups)
    since: dict[Key, datetime] = {}
    for group in waiting:
        since[group.cluster] = min(group.since, since.get(group.cluster, group.since))
    for group in sorted(waiting, key=lambda group: (since[group.cluster], group.cluster, group.since, group.name)):
        chunks, free_to_go = _chunks(group)
        if free_to_go:
            _take(left, _sum(free_to_go))
            releases.append(_release(group, free_to_go))
        for chunk in chunks:
            need = _sum(chunk)
            missing = group.together - len(chunk) if not group.released else 0
            if missing > 0:
                waits.setdefault((group.cluster, group.name), Wait(pods=missing))
            elif _fits(need, left):
                _take(left, need)
                releases.append(_release(group, chunk))
            else:
                impossible = not _fits(need, pool_units.total)
                waits.setdefault((group.cluster, group.name), Wait(units=need, impossible=impossible))
                deadline = group.since + patience
                if not impossible and now >= deadline:
                    _take(left, need)
                elif not impossible:
                    deadlines.append(deadline)
    return GangPlan(releases=tuple(releases), waits=waits, again_at=min(deadlines, default=None))


def _chunks(group: GangGroup) -> tuple[list[list[GatedPod]], list[GatedPod]]:
    """Pods that have to start at once, chunk by chunk, and those that wait for nothing any more."""
    by_replica: dict[str, list[GatedPod]] = defaultdict(list)
    for pod in sorted(group.gated, key=lambda pod: (pod.created, pod.name)):
        by_replica[pod.replica or pod.name].append(pod)
    if group.together <= 1:
        return [], [pod for replica in by_replica.values() for pod in replica]
    if not group.released:
        first: list[GatedPod] = []
        for replica in by_replica.values():
            if len(first) < group.together and len(replica) >= group.hosts:
                first += replica
        return [first], []
    if group.hosts == 1:
        return [], [pod for replica in by_replica.values() for pod in replica]
    begun = [pod for name, replica in by_replica.items() if name in group.released for pod in replica]
    whole = [replica for name, replica in by_replica.items() if name not in group.released]
    return [replica for replica in whole if len(replica) >= group.hosts], begun


def _release(group: GangGroup, pods: Iterable[GatedPod]) -> Release:
    chosen = list(pods)
    return Release(group.cluster, group.name, tuple(pod.name for pod in chosen), _sum(chosen))


def _sum(pods: Iterable[GatedPod]) -> dict[str, int]:
    total: dict[str, int] = defaultdict(int)
    for pod in pods:
        for resource, units in pod.units.items():
            total[resource] += units
    return dict(total)


def _fits(need: Units, left: Units) -> bool:
    return all(units <= left.get(resource, 0) for resource, units in need.items())


def _take(left: dict[str, int], units: Units) -> None:
    for resource, count in units.items():
        left[resource] -= count
