"""From what the backend and the host say to what can be handed out. Blocks: make the call in a thread."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from gpu_control_plane.agent.backends.interface import BackendError, DeviceFile, Instance
from gpu_control_plane.agent.cdi.edits import Edits, for_nodes, merged
from gpu_control_plane.agent.cdi.nodes import read_nodes
from gpu_control_plane.agent.cdi.spec import Device, card_name, instance_name
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.api.gpudevice import Hardware


class Cards(Protocol):
    """The part of a `Backend` that is asked here."""

    def cards(self) -> tuple[Hardware, ...]: ...

    def control_files(self) -> tuple[DeviceFile, ...]: ...

    def device_files(self, address: str) -> tuple[DeviceFile, ...]: ...

    def instances(self, address: str) -> tuple[Instance, ...]: ...

    def instance_files(self, address: str, instance: Instance) -> tuple[DeviceFile, ...]: ...


class Grantable(msgspec.Struct, frozen=True):
    """A card or a MIG instance that a container can be given."""

    device: Device
    uuid: str
    """What the driver calls it."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a node can hand out."""

    grantables: tuple[Grantable, ...]
    common: Edits
    """What every container with a card needs."""
    problems: tuple[str, ...]
    """Sentences about what had to be left out."""

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(grantable.device for grantable in self.grantables)


def describe(backend: Cards, common: Edits, host: HostPaths) -> Description:
    """What can be handed out now; `common` is what every container needs beside the cards' device files.

    A card that is cut into MIG instances cannot be had as a whole.
    """
    grantables: list[Grantable] = []
    problems: list[str] = []
    for card in backend.cards():
        try:
            wanted = list(_of_card(backend, card))
        except BackendError as error:
            problems.append(f"The card at {card.pci.address} is left out: {error}")
            continue
        for name, uuid, files in wanted:
            nodes = read_nodes(files, host)
            if nodes.present and not nodes.missing:
                grantables.append(Grantable(Device(name, for_nodes(nodes.present)), uuid))
            else:
                problems.append(f"{name} is left out: {_absent(nodes.missing)}")
    control = read_nodes(backend.control_files(), host)
    if control.missing:
        problems.append(f"Containers go without some control files: {_absent(control.missing)}")
    return Description(
        grantables=tuple(grantables),
        common=merged([for_nodes(control.present), common]),
        problems=tuple(problems),
    )


def _of_card(backend: Cards, card: Hardware) -> Iterator[tuple[str, str, Sequence[DeviceFile]]]:
    """What a card offers: the name, the driver's name, and the device files of each part."""
    if card.uuid is None:
        return
    address = card.pci.address
    files = backend.device_files(address)
    if card.mig is None or not card.mig.enabled:
        yield card_name(card.uuid), card.uuid, files
        return
    for instance in backend.instances(address):
        name = instance_name(card.uuid, instance.profile, instance.start)
        yield name, instance.uuid, (*files, *backend.instance_files(address, instance))


def _absent(paths: Sequence[str]) -> str:
    return f"no device file at {', '.join(paths)}." if paths else "it has no device files."
