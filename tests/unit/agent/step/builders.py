"""A node of two H200s, its objects and its orders, for tests of what the agent decides."""

from datetime import UTC, datetime

from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot, ObservedCard, probe_hardware
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import Machine, new_machine
from gpu_control_plane.agent.views import DeviceStatus, DeviceView, KnownHardware
from gpu_control_plane.api.allocation import MIG, Allocation, Mode, ProfileCount, TimeSlice
from gpu_control_plane.api.gpudevice import DeviceSpec
from gpu_control_plane.api.gpunodestate import Assignment, OfferedResource
from gpu_control_plane.kube.objects import ObjectMeta

NODE = "node-a"
RESOURCE = "gpu.deckhouse.io/training"
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def machine(cards: int = 2) -> Machine:
    return new_machine("H200-141", cards)


def backend(**options: object) -> SimulatedBackend:
    return SimulatedBackend(NODE, machine(), **options)  # type: ignore[arg-type]


def hardware() -> HardwareSnapshot:
    return probe_hardware(NODE, backend())


def first(snapshot: HardwareSnapshot) -> ObservedCard:
    return next(iter(snapshot.observed.values()))


def uuid_of(card: ObservedCard) -> str:
    assert card.hardware.uuid is not None
    return card.hardware.uuid


def device(card: ObservedCard, uuid: str | None = None) -> DeviceView:
    return DeviceView(
        metadata=ObjectMeta(name=card.id),
        spec=DeviceSpec(node_name=NODE, pci_address=card.address),
        status=DeviceStatus(hardware=KnownHardware(uuid=uuid or card.hardware.uuid)),
    )


def exclusive(card: str, resource: str = RESOURCE) -> Assignment:
    return _order(card, Allocation(mode=Mode.EXCLUSIVE), OfferedResource(name=resource, units=1))


def time_sliced(card: str, replicas: int, resource: str = RESOURCE) -> Assignment:
    allocation = Allocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=replicas))
    return _order(card, allocation, OfferedResource(name=resource, units=replicas))


def partitioned(card: str, **counts: int) -> Assignment:
    """MIG instances by profile, with `_` for the dot: `1g_18gb=2`."""
    parts = {name.replace("_", "."): count for name, count in counts.items()}
    layout = tuple(ProfileCount(profile=profile, count=count) for profile, count in parts.items())
    offered = (OfferedResource(name=f"{RESOURCE}.{name}", units=count, profile=name) for name, count in parts.items())
    return _order(card, Allocation(mode=Mode.MIG, mig=MIG(layout=layout)), *offered)


def profile_order(card: str, profile: str, resource: str = RESOURCE) -> Assignment:
    """As many instances of one profile as fit."""
    allocation = Allocation(mode=Mode.MIG, mig=MIG(profile=profile))
    return _order(card, allocation, OfferedResource(name=resource, units=1, profile=profile))


def _order(card: str, allocation: Allocation, *resources: OfferedResource) -> Assignment:
    return Assignment(inventory_id=card, pool="training", resources=resources, allocation=allocation)
