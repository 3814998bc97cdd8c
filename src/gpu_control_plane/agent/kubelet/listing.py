"""The device list of one resource, and the news that it has changed."""

import asyncio
from collections.abc import Iterable
from typing import Final

from gpu_control_plane.agent.kubelet.interface import Device, TooManyDevices
from gpu_control_plane.agent.kubelet.protocol import deviceplugin_pb2 as wire
from gpu_control_plane.agent.kubelet.sockets import MESSAGE_LIMIT

_HEALTH: Final = {True: "Healthy", False: "Unhealthy"}


class Listing:
    """What the kubelet should know about one resource. Outlives sockets, streams and kubelets."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.devices: tuple[Device, ...] = ()
        self.payload: bytes = b""
        """The list as it goes over the wire, made once for all streams."""
        self.news = asyncio.Event()
        """Set once, at the next news: take it before looking at the list, then wait for it."""
        self._on_offer: frozenset[str] = frozenset()
        self._known: frozenset[str] = frozenset()

    def replace(self, devices: Iterable[Device]) -> bool:
        """Take a new list; says whether it differs. The order of devices means nothing."""
        ordered = tuple(sorted(devices, key=lambda device: device.id))
        if ordered == self.devices:
            return False
        known = frozenset(device.id for device in ordered)
        if len(known) < len(ordered):
            raise ValueError(f"two devices of {self.resource} have the same id")
        self.payload = self._encoded(ordered)
        self.devices, self._known = ordered, known
        self._on_offer = frozenset(device.id for device in ordered if device.healthy)
        self.wake()
        return True

    def wake(self) -> None:
        """Have everybody who waits for news look again."""
        self.news.set()
        self.news = asyncio.Event()

    def knows(self, device: str) -> bool:
        return device in self._known

    def offers(self, device: str) -> bool:
        """Whether the device may be handed out: what is listed as unhealthy may not."""
        return device in self._on_offer

    @property
    def healthy(self) -> int:
        return len(self._on_offer)

    def _encoded(self, devices: tuple[Device, ...]) -> bytes:
        payload = wire.ListAndWatchResponse(devices=map(_message, devices)).SerializeToString()
        if len(payload) > MESSAGE_LIMIT:
            raise TooManyDevices(
                f"the list of {len(devices)} devices of {self.resource} takes {len(payload)} bytes, but the kubelet"
                f" reads at most {MESSAGE_LIMIT}; offer fewer replicas. The list before it stays in force"
            )
        return payload


def _message(device: Device) -> wire.Device:
    nodes = () if device.numa is None else (wire.NUMANode(ID=device.numa),)
    topology = wire.TopologyInfo(nodes=nodes) if nodes else None
    return wire.Device(ID=device.id, health=_HEALTH[device.healthy], topology=topology)
