"""The kubelet's books in our words: which units are held, and by whom each card is used. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from gpu_control_plane.agent.kubelet.podresources import Held
from gpu_control_plane.agent.mig.layout import Slot
from gpu_control_plane.agent.mig.units import parse_unit_id
from gpu_control_plane.agent.node.views import LocalPod
from gpu_control_plane.agent.units import REPLICA, CardID, ResourceName, Unit, card_of
from gpu_control_plane.agent.views import Container
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpudevice import Hardware, User

_SIDECAR = "Always"
_ENDED = frozenset({"Succeeded", "Failed"})


class Place(msgspec.Struct, frozen=True):
    """A card as it must be known to make sense of the kubelet's names."""

    card: CardID
    hardware: Hardware | None
    """None when it has gone: what pods hold of it still counts."""


class Books(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds what."""

    holders: dict[Unit, User]
    """Every unit that a container has."""
    users: dict[CardID, tuple[User, ...]]
    """The containers on each card, with all units they have of it."""

    @property
    def held(self) -> dict[Unit, str]:
        """Every unit that a pod has, with the pod as namespace/name."""
        return {unit: f"{user.namespace}/{user.pod}" for unit, user in self.holders.items()}


def read_books(entries: Iterable[Held], places: Mapping[str, Place]) -> Books:
    """Make sense of the kubelet's list; `places` are the cards by UUID. Other plugins' devices are left out."""
    holders: dict[Unit, User] = {}
    counts: dict[CardID, Counter[tuple[str, str, str, str]]] = defaultdict(Counter)
    for entry in entries:
        for unit_id in entry.ids:
            place = places.get(card_of(unit_id))
            if place is None:
                continue
            whose = entry.namespace, entry.pod, entry.container, entry.resource
            holders[_unit(entry.resource, unit_id, place)] = _user(*whose, 1)
            counts[place.card][whose] += 1
    return Books(
        holders=holders,
        users={card: tuple(_user(*whose, units) for whose, units in sorted(of.items())) for card, of in counts.items()},
    )


def starting(pods: Iterable[LocalPod]) -> set[ResourceName]:
    """The resources that init containers of this node may be holding now: the kubelet's list leaves them out."""
    return {
        name
        for pod in pods
        if pod.status.phase not in _ENDED and not _initialized(pod)
        for container in pod.spec.init_containers
        if container.restart_policy != _SIDECAR
        for name in container.resources.limits
    }


def unsettled(pods: Iterable[LocalPod], books: Books, resources: Iterable[ResourceName]) -> bool:
    """Whether the books are about to change: a pod that has ended is still in them, or a living one not yet."""
    served = set(resources)
    living = {
        f"{pod.metadata.namespace}/{pod.name}"
        for pod in pods
        if pod.status.phase not in _ENDED and _asks_for(pod.spec.containers, served)
    }
    return living != set(books.held.values())


def _asks_for(containers: Iterable[Container], served: set[ResourceName]) -> bool:
    return any(served & container.resources.limits.keys() for container in containers)


def _unit(resource: ResourceName, unit_id: str, place: Place) -> Unit:
    instance = parse_unit_id(unit_id)
    if instance is not None:
        size = _size(place.hardware, instance.profile)
        return Unit(resource, unit_id, place.card, Mode.MIG, (instance.start, instance.start + size))
    mode = Mode.TIME_SLICE if REPLICA in unit_id else Mode.EXCLUSIVE
    return Unit(resource, unit_id, place.card, mode)


def _size(hardware: Hardware | None, profile: str) -> int:
    """Memory slices of a profile; the whole card where that is not known any more, which keeps everybody away."""
    known = hardware.mig.profiles if hardware and hardware.mig else ()
    return next((each.slices for each in known if each.name == profile), 8)


def slot_of(unit: Unit) -> Slot | None:
    """The place of a MIG unit on its card."""
    instance = parse_unit_id(unit.id)
    if instance is None or unit.slices is None:
        return None
    return Slot(unit.slices[0], unit.slices[1] - unit.slices[0], instance.profile)


def _initialized(pod: LocalPod) -> bool:
    return any(each.type == "Initialized" and each.status == "True" for each in pod.status.conditions)


def _user(namespace: str, pod: str, container: str, resource: str, units: int) -> User:
    return User(namespace=namespace, pod=pod, container=container, resource=resource, units=units)
