"""The simulated kubelet's decision about the pods of a node: which start with which devices, and which fail. Pure.

A pod keeps what it was given once, so only pods about which nothing was decided yet are looked at.
"""

from collections.abc import Collection, Mapping, Sequence, Set

import msgspec

from gpu_control_plane.agent.fleet.pod_devices import Grant, Request, Shortage, grants, requests
from gpu_control_plane.agent.hardware_snapshot import ObservedCard
from gpu_control_plane.agent.kubelet.preferred_units import preferred_units
from gpu_control_plane.agent.step import Allocatable
from gpu_control_plane.agent.units import CardID, Unit
from gpu_control_plane.agent.views import NodeStatus, PodView
from gpu_control_plane.api.names import GROUP

_RUNNING = "Running"


class Admission(msgspec.Struct, frozen=True):
    """What was decided about a pod just now."""

    pod: PodView
    outcome: tuple[Grant, ...] | Shortage


def admit(
    pods: Sequence[PodView],
    allocatable: Allocatable,
    cards: Mapping[CardID, ObservedCard],
    *,
    served: Collection[str],
    status: NodeStatus,
) -> tuple[Admission, ...]:
    """Decide about every waiting pod, in order. `served` are the resources that this agent has ever advertised."""
    held = set(allocatable.held)
    admissions: list[Admission] = []
    for pod in pods:
        if grants(pod) is not None or pod.deleting:
            continue
        wanted = requests(pod)
        if not wanted:
            continue
        ours = [request for request in wanted if _is_ours(request, served, status)]
        outcome, taken = _allocate(ours, allocatable, cards, held)
        # A pod that runs already, because nothing made it wait for us, is left alone like any running pod.
        if isinstance(outcome, Shortage) and pod.status.phase == _RUNNING:
            continue
        held |= taken
        admissions.append(Admission(pod, outcome))
    return tuple(admissions)


def _allocate(
    wanted: Sequence[Request], allocatable: Allocatable, cards: Mapping[CardID, ObservedCard], held: Set[Unit]
) -> tuple[tuple[Grant, ...] | Shortage, set[Unit]]:
    """The devices of each container of a pod, all or nothing, and the units they are."""
    free = allocatable.units - held
    taken: set[Unit] = set()
    given: list[Grant] = []
    for request in wanted:
        candidates = [unit for unit in free if unit.resource == request.resource and unit not in taken]
        if len(candidates) < request.count:
            asked = sum(other.count for other in wanted if other.resource == request.resource)
            available = sum(unit.resource == request.resource for unit in free)
            return Shortage(request.resource, asked, available), set()
        ordered = sorted(candidates, key=lambda unit: (cards[unit.card].address, unit.id))
        in_use, ignored = {*held, *taken}, allocatable.numa_ignored
        chosen = tuple(preferred_units(ordered, cards, in_use, (), request.count, numa_ignored=ignored))
        taken |= {unit for unit in candidates if unit.id in chosen}
        given.append(Grant(request.container, request.resource, chosen))
    return tuple(given), taken


def _is_ours(request: Request, served: Collection[str], status: NodeStatus) -> bool:
    """Whether the agent serves this resource. Another plugin's is left to it, as long as the Node has some."""
    if request.resource in served or request.resource.startswith(f"{GROUP}/"):
        return True
    return status.allocatable.get(request.resource, "0") == "0"
