"""A node of two H200s as the agent sees it, for tests of what it decides."""

from gpu_control_plane.agent.node.picture import Picture, Seen, look
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import Machine, new_machine
from gpu_control_plane.agent.views import Card, CardStatus, KnownHardware
from gpu_control_plane.api.allocation import MIG, Allocation, Mode, ProfileCount, TimeSlice
from gpu_control_plane.api.gpudevice import DeviceSpec
from gpu_control_plane.api.gpunodestate import Assignment, OfferedResource
from gpu_control_plane.kube.objects import ObjectMeta

NODE = "node-a"
RESOURCE = "gpu.deckhouse.io/training"


def machine(cards: int = 2) -> Machine:
    return new_machine("H200-141", cards)


def backend(**options: object) -> SimulatedBackend:
    return SimulatedBackend(NODE, machine(), **options)  # type: ignore[arg-type]


def picture() -> Picture:
    return look(NODE, backend())


def first(seen: Picture) -> Seen:
    return next(iter(seen.seen.values()))


def uuid_of(seen: Seen) -> str:
    assert seen.hardware.uuid is not None
    return seen.hardware.uuid


def device(seen: Seen, uuid: str | None = None) -> Card:
    return Card(
        metadata=ObjectMeta(name=seen.id),
        spec=DeviceSpec(node_name=NODE, pci_address=seen.address),
        status=CardStatus(hardware=KnownHardware(uuid=uuid or seen.hardware.uuid)),
    )


def exclusive(card: str, resource: str = RESOURCE) -> Assignment:
    return _order(card, Allocation(mode=Mode.EXCLUSIVE), OfferedResource(name=resource, units=1))


def turns(card: str, replicas: int, resource: str = RESOURCE) -> Assignment:
    allocation = Allocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=replicas))
    return _order(card, allocation, OfferedResource(name=resource, units=replicas))


def cut(card: str, **counts: int) -> Assignment:
    """Instances by profile, with `_` for the dot: `1g_18gb=2`."""
    parts = {name.replace("_", "."): count for name, count in counts.items()}
    layout = tuple(ProfileCount(profile=profile, count=count) for profile, count in parts.items())
    offered = (OfferedResource(name=f"{RESOURCE}.{name}", units=count, profile=name) for name, count in parts.items())
    return _order(card, Allocation(mode=Mode.MIG, mig=MIG(layout=layout)), *offered)


def _order(card: str, allocation: Allocation, *resources: OfferedResource) -> Assignment:
    return Assignment(inventory_id=card, pool="training", resources=resources, allocation=allocation)
