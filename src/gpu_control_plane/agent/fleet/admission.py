"""The kubelet's decision about the pods of a node: which start with which cards, which fail, who holds what.

Pure. What a pod was given once it keeps, so only pods about which nothing was decided yet are looked at.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from gpu_control_plane.agent.fleet.placement import Grant, Need, Shortage, Spot, place
from gpu_control_plane.agent.fleet.pods import grants, needs, users
from gpu_control_plane.agent.views import NodeStatus, Pod
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.api.names import GROUP

_RUNNING = "Running"


class Admission(msgspec.Struct, frozen=True):
    """What was decided."""

    outcomes: tuple[tuple[Pod, tuple[Grant, ...] | Shortage], ...]
    """The pods about which something was decided just now."""
    users: dict[str, tuple[User, ...]]
    """Who holds which card, once that is carried out."""


def admit(
    pods: Sequence[Pod],
    available: Mapping[str, str],
    spots: Iterable[Spot],
    *,
    served: Collection[str],
    status: NodeStatus,
) -> Admission:
    """Decide about every waiting pod, in order.

    `available` are the cards on offer and their resources; `served` are the resources this agent ever announced.
    """
    holders: dict[str, list[User]] = defaultdict(list)
    for pod in pods:
        for card, user in users(pod, grants(pod) or ()).items():
            holders[card].append(user)
    free: dict[str, list[Spot]] = defaultdict(list)
    for spot in spots:
        if spot.card in available and spot.card not in holders:
            free[available[spot.card]].append(spot)

    outcomes: list[tuple[Pod, tuple[Grant, ...] | Shortage]] = []
    for pod in pods:
        if grants(pod) is not None or pod.deleting:
            continue
        wanted = [need for need in needs(pod) if _from_us(need, served, status)]
        if not needs(pod):
            continue
        outcome = place(wanted, free)
        if isinstance(outcome, Shortage):
            # A pod that runs already, because nothing made it wait for us, is left alone like any running pod.
            if pod.status.phase != _RUNNING:
                outcomes.append((pod, outcome))
            continue
        outcomes.append((pod, outcome))
        for card, user in users(pod, outcome).items():
            holders[card].append(user)
            free[user.resource] = [spot for spot in free[user.resource] if spot.card != card]
    ordered = {card: tuple(sorted(held, key=_place)) for card, held in holders.items()}
    return Admission(tuple(outcomes), ordered)


def _from_us(need: Need, served: Collection[str], status: NodeStatus) -> bool:
    """Whether the agent serves this resource. Another plugin's is its own affair, as long as the Node has some."""
    if need.resource in served or need.resource.startswith(f"{GROUP}/"):
        return True
    return status.allocatable.get(need.resource, "0") == "0"


def _place(user: User) -> tuple[str, str, str]:
    return user.namespace, user.pod, user.container
