"""The device list of one resource, and a signal when it has changed."""

import asyncio
from collections.abc import Iterable
from typing import Final

from gpu_control_plane.agent.kubelet.interface import Device, TooManyDevices
from gpu_control_plane.agent.kubelet.protocol import deviceplugin_pb2 as wire
from gpu_control_plane.agent.kubelet.sockets import MAX_MESSAGE_BYTES

_HEALTH: Final = {True: "Healthy", False: "Unhealthy"}


class DeviceList:
    """What the kubelet should know about one resource. It stays when sockets, streams and kubelets come and go."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.devices: tuple[Device, ...] = ()
        self.payload: bytes = b""
        """The list as it goes over the wire, made once for all streams."""
        self.number = 0
        """Another one for every list that has to be sent, also for the same one again."""
        self.changed = asyncio.Event()
        """Set at the next change, and replaced by a new one: take it before reading the list, then wait for it."""
        self._ids: frozenset[str] = frozenset()
        self._healthy_ids: frozenset[str] = frozenset()

    def replace(self, devices: Iterable[Device]) -> bool:
        """Take a new list; says whether it differs. The order of devices means nothing."""
        ordered = tuple(sorted(devices, key=lambda device: device.id))
        if ordered == self.devices:
            return False
        ids = frozenset(device.id for device in ordered)
        if len(ids) < len(ordered):
            raise ValueError(f"two devices of {self.resource} have the same id")
        self.payload = self._encoded(ordered)
        self.devices, self._ids = ordered, ids
        self._healthy_ids = frozenset(device.id for device in ordered if device.healthy)
        self.send_again()
        return True

    def send_again(self) -> None:
        """Have every stream send the list, whether or not it has changed."""
        self.number += 1
        self.wake()

    def wake(self) -> None:
        """Have every stream look at the list again."""
        self.changed.set()
        self.changed = asyncio.Event()

    def has(self, device: str) -> bool:
        return device in self._ids

    def is_healthy(self, device: str) -> bool:
        """Whether the device is listed as healthy: no other may be allocated."""
        return device in self._healthy_ids

    @property
    def healthy(self) -> int:
        """How many devices are listed as healthy."""
        return len(self._healthy_ids)

    def _encoded(self, devices: tuple[Device, ...]) -> bytes:
        payload = wire.ListAndWatchResponse(devices=map(_message, devices)).SerializeToString()
        if len(payload) > MAX_MESSAGE_BYTES:
            raise TooManyDevices(
                f"the list of {len(devices)} devices of {self.resource} takes {len(payload)} bytes, but the kubelet"
                f" reads at most {MAX_MESSAGE_BYTES}; offer fewer replicas. The list before it stays in force"
            )
        return payload


def _message(device: Device) -> wire.Device:
    nodes = () if device.numa is None else (wire.NUMANode(ID=device.numa),)
    topology = wire.TopologyInfo(nodes=nodes) if nodes else None
    return wire.Device(ID=device.id, health=_HEALTH[device.healthy], topology=topology)
