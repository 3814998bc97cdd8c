"""Units: the devices of the device plugin API, which the kubelet allocates one by one.

A whole card is one unit, a time-sliced card is one unit a replica, and each MIG instance is one. Two units clash when
two pods must not hold them at the same time: this is all that the rest of the agent has to know about sharing.
"""

import msgspec

from gpu_control_plane.api.allocation import Mode

type CardID = str
type ResourceName = str

REPLICA = "::"
"""Separates the UUID of a card from what tells its units apart."""


class Unit(msgspec.Struct, frozen=True):
    """One device of the device plugin API."""

    resource: ResourceName
    id: str
    """The kubelet's device ID. It stays the same for as long as the card does."""
    card: CardID
    mode: Mode = Mode.EXCLUSIVE
    slices: tuple[int, int] | None = None
    """The part of the card that a MIG instance covers: its first memory slice, and the one after its last."""


class ContainerDevices(msgspec.Struct, frozen=True, order=True):
    """Devices of one resource that the kubelet has allocated to one container."""

    namespace: str
    pod: str
    container: str
    resource: ResourceName
    ids: tuple[str, ...]


class PodDevices(msgspec.Struct, frozen=True):
    """Devices of one resource that the kubelet's checkpoint records for one container of a pod."""

    pod_uid: str
    resource: ResourceName
    ids: tuple[str, ...]


class Hold(msgspec.Struct, frozen=True):
    """A pod may use a unit. It holds the unit until its processes have ended, whatever the kubelet remembers."""

    unit: Unit
    pod_uid: str
    pod: str
    """Its namespace and name, for people."""


def clash(one: Unit, other: Unit) -> bool:
    """Whether allocating one unit rules out the other."""
    if one.card != other.card:
        return False
    if one.mode is Mode.MIG and other.mode is Mode.MIG and one.slices and other.slices:
        return one.slices[0] < other.slices[1] and other.slices[0] < one.slices[1]
    both_shared = one.mode is Mode.TIME_SLICE and other.mode is Mode.TIME_SLICE
    return not (both_shared and one.resource == other.resource and one.id != other.id)


def replica_id(uuid: str, number: int) -> str:
    """A replica of a time-sliced card, in the form that NVIDIA's plugin made familiar."""
    return f"{uuid}{REPLICA}{number}"


def card_of(unit_id: str) -> str:
    """The UUID of the card behind a unit."""
    return unit_id.partition(REPLICA)[0]
