"""What the kubelet is offered and given, in our words, and who decides about it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class Device(msgspec.Struct, frozen=True):
    """One unit that pods can be given: a card, a MIG instance or a replica."""

    id: str
    """Stays with the unit for ever, whatever order cards are found in: the kubelet's books are kept by it."""
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


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a container gets with its devices. The kubelet keeps it and uses it again, unasked, whenever the container
    restarts: everything named here must stay valid for the life of the pod."""

    cdi_devices: tuple[str, ...] = ()
    """Qualified names, such as `gpu.deckhouse.io/gpu=GPU-…`."""
    devices: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    envs: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Refused(Exception):
    """Raised by an allocator: the devices are not handed out. The sentence ends up in the pod's status."""


class PluginError(Exception):
    """The agent cannot serve the kubelet at all, and a restart may help; the sentence says why."""


class TooManyDevices(ValueError):
    """A list that the kubelet could not receive in one message; the former list stands."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """How far the kubelet has been told about one resource."""

    resource: str
    devices: tuple[Device, ...]
    """The list as it should be known, ordered by id."""
    registered: bool
    """The kubelet has accepted the resource, and has not been lost since."""
    streams: int
    """How many times the kubelet listens; 0 means that it counts every device as unhealthy."""
    told: bool
    """The present list has been sent to everybody who listens. The kubelet does not confirm that it has read it."""
    pushed_at: float | None
    """When a list was last sent, in seconds since 1970."""


class Allocator(Protocol):
    """Decides what a container gets. It is only asked for devices that are listed as healthy at that moment."""

    async def allocate(self, resource: str, ids: tuple[str, ...]) -> Grant:
        """What comes with these devices; raises Refused. Pods wait for the answer, so it has to be quick."""

    def prefer(self, resource: str, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """The best `size` of the available devices, those required among them."""
