"""An upgrade without a second set of GPUs: workers of the old cluster go one by one, and with their cards come workers
of the new one. Pure.

Both clusters together never ask for more than the allowance: what the old one had when it began, and what was free
then. All that has to be remembered is in the specs of the two clusters and in one annotation of the newer one, so each
step is decided from what is there, in either direction: going back is the same with the clusters exchanged.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpu_control_plane.api.ray.cluster import RayClusterSpec, ScaleStrategy, WorkerGroupSpec
from gpu_control_plane.ray.cluster.pod_state import is_gated
from gpu_control_plane.ray.demand import group_replicas
from gpu_control_plane.ray.owned import RayPod
from gpu_control_plane.rules.ray.amounts import pod_devices
from gpu_control_plane.rules.ray.gpus import is_gpu_of_kuberay, is_gpu_of_nvidia

Units = Mapping[str, int]
"""GPUs by the resource that containers ask for."""

NONE: Final[Units] = {}
_MOST_MOVES: Final = 2000
GAP: Final = (
    "a worker that answers goes before one of the new cluster can come, so for a time requests are not answered: add "
    "cards to the pool or set the annotation gpu.deckhouse.io/in-place-upgrade: never to avoid it"
)


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A worker group whose pods have cards."""

    name: str
    units: Units
    """Of one replica."""
    goal: int = 0
    wanted: int = 0
    """Replicas that the spec of the cluster asks for now."""
    there: int = 0
    """Replicas whose pods exist, also those that are on their way out."""
    running: int = 0
    unscheduled: int = 0
    """Of those that are there, how many have no node yet."""
    gated: int = 0
    """Of those without a node, how many wait until there are cards for all of them."""


class ClusterCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the two clusters has and asks for."""

    groups: tuple[Group, ...] = ()
    head: Units = NONE
    head_ready: bool = True

    @property
    def units(self) -> dict[str, int]:
        """What its pods have, or are about to ask for."""
        return total([(self.head, 1), *((group.units, max(group.wanted, group.there)) for group in self.groups)])

    @property
    def replicas(self) -> int:
        return sum(group.wanted for group in self.groups)

    @property
    def cards(self) -> int:
        """Cards of workers that run and are to stay."""
        return sum(min(group.running, group.wanted) * sum(group.units.values()) for group in self.groups)

    @property
    def whole(self) -> bool:
        return all(group.running >= group.goal for group in self.groups)


class Wait(msgspec.Struct, frozen=True):
    """Nothing is to be done until what is named has come."""

    on: str


class SwitchFirst(msgspec.Struct, frozen=True):
    """The next worker to go is the last one of its group: requests should go to the new cluster before."""

    group: str


class Shrink(msgspec.Struct, frozen=True):
    """A worker of the old cluster goes."""

    group: str
    replicas: int
    gap: bool = False
    """Whether nothing answers until the next worker of the new one does."""


class Grow(msgspec.Struct, frozen=True):
    """A worker of the new cluster comes."""

    group: str
    replicas: int


class Done(msgspec.Struct, frozen=True):
    """The new cluster has all its workers."""


Move = Wait | SwitchFirst | Shrink | Grow | Done


def next_move(  # noqa: PLR0911 - one question after the other
    target: ClusterCapacity,
    source: ClusterCapacity,
    allowance: Units,
    *,
    switched: bool,
    may_answer: bool,
    patient: bool,
    answers_all: bool = False,
    failing: bool = False,
    others: Units = NONE,
) -> Move:
    """The next move. `allowance`: what both may ask for; `switched`: requests go to the target already; `may_answer`:
    it could take them if it had to; `patient`: the workers that have moved have had little time yet to begin to answer;
    `answers_all`: those that have moved answer for everything; `failing`: more workers would not make them answer;
    `others`: what further clusters of the service still have."""
    if not target.head_ready:
        return Wait("its head")
    if leaving := next((group for group in source.groups if group.there > group.wanted), None):
        return Wait(f"the cards of a worker of group {leaving.name} that goes")
    used = total([(target.units, 1), (source.units, 1), (others, 1)])
    over = {resource for resource, units in used.items() if units > allowance.get(resource, 0)}
    if over and (giving := _to_shrink(source, over)) is not None:
        return _shrink(giving, target, switched=switched, may_answer=may_answer, patient=patient, failing=failing)
    if coming := next((group for group in target.groups if group.running < group.wanted), None):
        return Wait(f"a worker of group {coming.name} that comes")
    growing = _to_grow(target)
    if growing is None:
        return Done()
    begun = all(group.wanted for group in target.groups if group.goal)
    if (patient or failing) and not switched and not answers_all and begun:
        return Wait("its applications, which have a worker of each group")
    lacking = {
        resource
        for resource, units in growing.units.items()
        if used.get(resource, 0) + units > allowance.get(resource, 0)
    }
    if lacking and (giving := _to_shrink(source, lacking)) is not None:
        return _shrink(giving, target, switched=switched, may_answer=may_answer, patient=patient, failing=failing)
    if any(others.get(resource) for resource in lacking):
        return Wait("the cards of a cluster that goes")
    # The target needs more than the allowance: its workers wait for cards as those of any cluster do.
    return Grow(growing.name, growing.wanted + 1)


def _shrink(
    giving: Group, target: ClusterCapacity, *, switched: bool, may_answer: bool, patient: bool, failing: bool
) -> Move:
    """A worker goes. The last one of its group, without which the source does not answer for all, goes after requests
    have gone to the target if that may answer. It waits while workers of the target may still begin to answer, and if
    the applications of the target fail, so that its cards would be of no use there."""
    last = giving.wanted == 1 and not switched and giving.running > 0
    if last and may_answer:
        return SwitchFirst(giving.name)
    if last and (failing or (patient and any(group.running for group in target.groups))):
        return Wait("its applications, before the last worker that answers goes")
    return Shrink(giving.name, giving.wanted - 1, gap=last)


def outweighs(target: ClusterCapacity, source: ClusterCapacity) -> bool:
    """Whether the target has as many workers as the source still has, so that requests lose nothing by going there."""
    return target.whole or target.cards >= source.cards


def has_gap(target: ClusterCapacity, source: ClusterCapacity, allowance: Units) -> bool:
    """Whether there will be a time without an answer, even if all goes well: the moves played to their end, with
    applications that answer as soon as there is a worker of each group. A gap after very many moves is not foreseen: a
    spec may name any number of workers."""
    switched = False
    for _ in range(min(2 * (sum(group.goal for group in target.groups) + source.replicas) + 1, _MOST_MOVES)):
        switched = switched or all(group.wanted for group in target.groups if group.goal)
        match next_move(target, source, allowance, switched=switched, may_answer=switched, patient=False):
            case Shrink(gap=True):
                return True
            case Shrink() as move:
                source = _played(source, move.group, move.replicas)
            case Grow() as move:
                target = _played(target, move.group, move.replicas)
            case _:
                return False
    return False


def settled(one: ClusterCapacity) -> ClusterCapacity:
    """The cluster with all workers that it is to have, and no others."""
    groups = tuple(msgspec.structs.replace(group, there=group.wanted, running=group.wanted) for group in one.groups)
    return msgspec.structs.replace(one, groups=groups)


def total(amounts: Iterable[tuple[Units, int]]) -> dict[str, int]:
    """The sum of amounts, each multiplied."""
    found: dict[str, int] = {}
    for units, times in amounts:
        for resource, count in units.items():
            found[resource] = found.get(resource, 0) + count * times
    return found


def pod_units(template: Mapping[str, Any], pooled: Iterable[str]) -> dict[str, int]:
    """The GPUs that a pod needs at once, by resource."""
    pools = frozenset(pooled)
    return {
        resource: units
        for resource, units in pod_devices(template.get("spec") or {}).items()
        if resource in pools or is_gpu_of_kuberay(resource) or is_gpu_of_nvidia(resource)
    }


def replica_units(group: WorkerGroupSpec, pooled: Iterable[str]) -> dict[str, int]:
    return total([(pod_units(group.template, pooled), max(1, group.num_of_hosts))])


def demand(spec: RayClusterSpec, replicas: Mapping[str, int], pooled: Iterable[str]) -> dict[str, int]:
    """What a cluster asks for with so many replicas of each group."""
    pools = tuple(pooled)
    groups = [(replica_units(group, pools), replicas.get(group.group_name, 0)) for group in spec.worker_group_specs]
    return total([(pod_units(spec.head_group_spec.template, pools), 1), *groups])


def fits(wanted: Units, free: Units) -> bool:
    """Whether all of it is free. How much there is of a resource of no pool is not known: it counts as free."""
    return all(units <= free[resource] for resource, units in wanted.items() if resource in free)


def cluster_capacity(
    spec: RayClusterSpec, pods: Sequence[RayPod], goals: Mapping[str, int], pooled: Iterable[str], *, head_ready: bool
) -> ClusterCapacity:
    """A cluster as the handover sees it: its groups with cards."""
    pools = tuple(pooled)
    return ClusterCapacity(
        groups=tuple(
            _group(group, units, pods, goals.get(group.group_name, 0))
            for group in spec.worker_group_specs
            if (units := replica_units(group, pools))
        ),
        head=pod_units(spec.head_group_spec.template, pools),
        head_ready=head_ready,
    )


def pods_to_go(pods: Iterable[RayPod], group: WorkerGroupSpec, replicas: int) -> tuple[str, ...]:
    """Names of the pods that go so that so many replicas are left: those that do not run first, then the youngest. Of
    a replica with several hosts one name is enough."""
    hosts = max(1, group.num_of_hosts)
    held = [pod for pod in pods if pod.group == group.group_name and not pod.is_head and not pod.deleting]
    by_replica: dict[str, list[RayPod]] = {}
    for pod in held:
        by_replica.setdefault(_replica(pod) if hosts > 1 else pod.name, []).append(pod)
    worst_first = sorted(
        by_replica.values(),
        key=lambda members: (
            all(pod.running for pod in members),
            -max(_age_key(pod) for pod in members),
            members[0].name,
        ),
    )
    return tuple(sorted(members[0].name for members in worst_first[: max(0, len(by_replica) - replicas)]))


def with_pods_to_go(group: WorkerGroupSpec, going: tuple[str, ...]) -> WorkerGroupSpec:
    """The group with the names of the pods that are to go in its scaleStrategy."""
    if not going and group.scale_strategy is None:
        return group
    return msgspec.structs.replace(group, scale_strategy=ScaleStrategy(workers_to_delete=going))


def _group(group: WorkerGroupSpec, units: Units, pods: Sequence[RayPod], goal: int) -> Group:
    hosts = max(1, group.num_of_hosts)
    held = [pod for pod in pods if pod.group == group.group_name and not pod.is_head and not pod.ended]
    running = sum(pod.running and not pod.deleting for pod in held)
    waiting = [pod for pod in held if not pod.spec.node_name and not pod.deleting]
    return Group(
        name=group.group_name,
        units=units,
        goal=goal,
        wanted=group_replicas(group),
        there=-(-len(held) // hosts),
        running=running // hosts,
        unscheduled=-(-len(waiting) // hosts),
        gated=-(-sum(map(is_gated, waiting)) // hosts),
    )


def scheduled_units(groups: Iterable[Group], head: Units) -> dict[str, int]:
    """Cards that pods of a cluster hold."""
    return total([(head, 1), *((group.units, group.there - group.unscheduled) for group in groups)])


def _to_grow(target: ClusterCapacity) -> Group | None:
    """The group that gets the next worker: one without any first, so that every deployment gets a worker early."""
    lacking = [group for group in target.groups if group.wanted < group.goal]
    return min(lacking, key=lambda group: group.wanted / group.goal, default=None)


def _to_shrink(source: ClusterCapacity, resources: Iterable[str]) -> Group | None:
    """The group that gives the next worker: of those with the right cards, the one with most left."""
    scarce = set(resources)
    giving = [group for group in source.groups if group.wanted and scarce & group.units.keys()]
    return max(giving, key=lambda group: group.wanted, default=None)


def _played(one: ClusterCapacity, group: str, replicas: int) -> ClusterCapacity:
    return ClusterCapacity(
        groups=tuple(
            msgspec.structs.replace(held, wanted=replicas, there=replicas, running=replicas)
            if held.name == group
            else held
            for held in one.groups
        ),
        head=one.head,
    )


def _replica(pod: RayPod) -> str:
    return pod.metadata.labels.get("ray.io/worker-group-replica-name", pod.name)


def _age_key(pod: RayPod) -> float:
    made = pod.metadata.creation_timestamp
    return made.timestamp() if made is not None else 0.0
