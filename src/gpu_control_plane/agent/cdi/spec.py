"""The CDI spec: the devices of a node by name, and the edits that each of them makes to a container.

The kubelet keeps names for the life of a pod, so they are made of what does not change: a card's UUID, and for a MIG
instance its card, profile and place (`GPU-…:1g.18gb.me:3`). An instance's own UUID changes when the instance is created
anew, as after a reboot. CDI allows letters, digits and `_ - . :` in names, hence `.` for `+`.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.api.allocation import resource_suffix
from gpu_control_plane.api.names import GROUP

KIND: Final = f"{GROUP}/gpu"


class Device(msgspec.Struct, frozen=True, rename="camel"):
    """A device that containers can ask for."""

    name: str
    container_edits: Edits


class Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A CDI spec. Its own edits are made once for each container, whichever devices it gets."""

    cdi_version: str
    kind: str = KIND
    devices: tuple[Device, ...]
    container_edits: Edits = Edits()


def card_name(uuid: str) -> str:
    """The name of a whole card."""
    return uuid


def instance_name(card_uuid: str, profile: str, start: int) -> str:
    """The name of the MIG instance of this profile at this memory slice of a card."""
    return f"{card_uuid}:{resource_suffix(profile)}:{start}"


def qualified_name(name: str) -> str:
    """The name by which a container runtime is asked for a device."""
    return f"{KIND}={name}"


def spec(devices: Iterable[Device], common: Edits) -> Spec:
    """The spec with these devices, in the order of their names."""
    ordered = tuple(sorted(devices, key=lambda device: device.name))
    return Spec(cdi_version=_version(ordered, common), devices=ordered, container_edits=common)


def encode(content: Spec) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def decode(data: bytes) -> Spec:
    """Raises ValueError if it is no CDI spec."""
    return msgspec.json.decode(data, type=Spec)


def _version(devices: tuple[Device, ...], common: Edits) -> str:
    """The oldest version that has every field in use: a runtime refuses a spec of a version that is too low or too
    high."""
    parts = (common, *(device.container_edits for device in devices))
    if any(part.additional_gids for part in parts):
        return "0.7.0"
    if any(node.host_path for part in parts for node in part.device_nodes):
        return "0.5.0"
    if any(device.name[0].isdigit() for device in devices):
        return "0.5.0"
    return "0.3.0"
