"""Which pods hold which units, by the kubelet's pod-resources API. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot
from gpu_control_plane.agent.mig.units import parse_unit_id
from gpu_control_plane.agent.units import REPLICA, CardID, ContainerDevices, ResourceName, Unit, card_of
from gpu_control_plane.agent.views import DeviceView
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpudevice import Hardware, User

_UNKNOWN_SIZE = 8


class CardRef(msgspec.Struct, frozen=True):
    """The card behind the device IDs that the kubelet knows."""

    card: CardID
    hardware: Hardware | None
    """None when the card has left the machine: what pods hold of it still counts."""


type CardRefs = Mapping[str, CardRef]
"""By UUID."""


class PodAllocations(msgspec.Struct, frozen=True, kw_only=True):
    """Which containers hold what."""

    holders: dict[Unit, User]
    """Every unit that a container has."""
    users: dict[CardID, tuple[User, ...]]
    """The containers on each card, with the number of units each has of it."""

    @property
    def held(self) -> dict[Unit, str]:
        """Every unit that a pod has, with the pod as namespace/name."""
        return {unit: f"{user.namespace}/{user.pod}" for unit, user in self.holders.items()}


def card_refs(devices: Iterable[DeviceView], hardware: HardwareSnapshot | None) -> dict[str, CardRef]:
    """Every known card by its UUID, also those that have left the machine: a pod may still hold one."""
    refs = {
        device.status.hardware.uuid: CardRef(device.name, None)
        for device in devices
        if device.status.hardware and device.status.hardware.uuid
    }
    present = hardware.by_uuid() if hardware is not None else {}
    return refs | {uuid: CardRef(card.id, card.hardware) for uuid, card in present.items()}


def pod_allocations(entries: Iterable[ContainerDevices], refs: CardRefs) -> PodAllocations:
    """Interpret the kubelet's list; `refs` are the cards by UUID. Devices of other plugins are left out."""
    holders: dict[Unit, User] = {}
    counts: dict[CardID, Counter[tuple[str, str, str, str]]] = defaultdict(Counter)
    for entry in entries:
        for unit_id in entry.ids:
            unit = allocated_unit(entry.resource, unit_id, refs)
            if unit is None:
                continue
            container = entry.namespace, entry.pod, entry.container, entry.resource
            holders[unit] = _user(*container, 1)
            counts[unit.card][container] += 1
    return PodAllocations(
        holders=holders,
        users={
            card: tuple(_user(*container, units) for container, units in sorted(of_card.items()))
            for card, of_card in counts.items()
        },
    )


def allocated_unit(resource: ResourceName, unit_id: str, refs: CardRefs) -> Unit | None:
    """The unit behind a device ID of the kubelet; None for a device of another plugin."""
    ref = refs.get(card_of(unit_id))
    if ref is None:
        return None
    instance = parse_unit_id(unit_id)
    if instance is not None:
        size = _size(ref.hardware, instance.profile)
        return Unit(resource, unit_id, ref.card, Mode.MIG, (instance.start, instance.start + size))
    mode = Mode.TIME_SLICE if REPLICA in unit_id else Mode.EXCLUSIVE
    return Unit(resource, unit_id, ref.card, mode)


def _size(hardware: Hardware | None, profile: str) -> int:
    """Memory slices of a profile. Where that is no longer known it counts as the whole card."""
    known = hardware.mig.profiles if hardware and hardware.mig else ()
    return next((each.slices for each in known if each.name == profile), _UNKNOWN_SIZE)


def _user(namespace: str, pod: str, container: str, resource: str, units: int) -> User:
    return User(namespace=namespace, pod=pod, container=container, resource=resource, units=units)
