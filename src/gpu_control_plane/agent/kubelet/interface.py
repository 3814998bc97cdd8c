"""The device plugin API in our own types: the devices of a resource, what Allocate answers, and who decides that."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class Device(msgspec.Struct, frozen=True):
    """One device of a resource: a card, a MIG instance or a replica of a card."""

    id: str
    """Never changes, in whatever order cards are found: the kubelet's checkpoint knows allocated devices by it."""
    healthy: bool
    numa: int | None = None
    """Leave it out when the machine does not tell: one device with a NUMA node makes the whole resource NUMA-aware."""


class DeviceNode(msgspec.Struct, frozen=True):
    """A device file that a container gets."""

    path: str
    host_path: str
    permissions: str = "rw"


class Mount(msgspec.Struct, frozen=True):
    """A file or folder of the host that a container sees."""

    path: str
    host_path: str
    read_only: bool = True


class ContainerAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """What Allocate answers for one container. The kubelet stores it and uses it again, without asking, whenever the
    container restarts: everything named here must stay valid for the life of the pod."""

    cdi_devices: tuple[str, ...] = ()
    """Qualified names, such as `gpu.deckhouse.io/gpu=GPU-…`."""
    devices: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    envs: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class AllocationRefused(Exception):
    """Raised by an allocator: the container does not get the devices. The sentence ends up in the pod's status."""


class PluginError(Exception):
    """No device plugin can be served, and a restart of the agent may help; the sentence says why."""


class TooManyDevices(ValueError):
    """A device list that the kubelet could not receive in one message; the list before it stays in force."""


class ResourceState(msgspec.Struct, frozen=True, kw_only=True):
    """What the kubelet has been sent about one resource."""

    resource: str
    devices: tuple[Device, ...]
    """The list that the kubelet should have, ordered by id."""
    registered: bool
    """The kubelet has accepted the registration, and its connection has not been lost since."""
    streams: int
    """Open ListAndWatch streams; with none the kubelet counts every device as unhealthy."""
    list_sent: bool
    """The current list has been sent on every open stream. The kubelet does not confirm that it has read it."""
    pushed_at: float | None
    """When a list was last sent, in seconds since 1970."""


class Allocator(Protocol):
    """Decides what a container gets. It is asked only for devices that are listed as healthy at that moment."""

    async def allocate(self, resource: str, ids: tuple[str, ...]) -> ContainerAllocation:
        """The answer for a container with these devices; raises AllocationRefused. Pods wait for it."""

    def prefer(self, resource: str, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """The best `size` of the available devices, including those required."""
