"""Which devices a container can be given, from what the backend and the host's device files say. Blocks.

Device files are read anew each time: majors, and minors of capability files, change with every load of the driver.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from gpu_control_plane.agent.backends.interface import BackendError, DeviceFile, Instance
from gpu_control_plane.agent.cdi.edits import READ_WRITE, DeviceNode, Edits, device_node_edits, merged
from gpu_control_plane.agent.cdi.spec import Device, card_name, instance_name
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.api.gpudevice import Hardware


class CardDevices(Protocol):
    """The part of a `Backend` that is asked here."""

    def cards(self) -> tuple[Hardware, ...]: ...

    def control_files(self) -> tuple[DeviceFile, ...]: ...

    def device_files(self, address: str) -> tuple[DeviceFile, ...]: ...

    def instances(self, address: str) -> tuple[Instance, ...]: ...

    def instance_files(self, address: str, instance: Instance) -> tuple[DeviceFile, ...]: ...


class InjectableDevice(msgspec.Struct, frozen=True):
    """A card or a MIG instance that a container can be given."""

    device: Device
    uuid: str
    """The driver's name for it."""


class InjectableDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of a node that containers can be given."""

    injectable: tuple[InjectableDevice, ...]
    common: Edits
    """What every container with a card needs."""
    problems: tuple[str, ...]
    """What had to be left out, in sentences."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """As the CDI spec has them."""
        return tuple(each.device for each in self.injectable)


class HostNodes(msgspec.Struct, frozen=True):
    """The device files that exist, and the paths of those that do not."""

    present: tuple[DeviceNode, ...]
    missing: tuple[str, ...]


def injectable_devices(backend: CardDevices, common: Edits, host: HostPaths) -> InjectableDevices:
    """The devices of a node; `common` is what every container needs beside the cards' device files.

    Of a card in MIG mode only the instances can be injected.
    """
    found: list[InjectableDevice] = []
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
                found.append(InjectableDevice(Device(name, device_node_edits(nodes.present)), uuid))
            else:
                problems.append(f"{name} is left out: {_absent(nodes.missing)}")
    control = read_nodes(backend.control_files(), host)
    if control.missing:
        problems.append(f"Containers go without some control files: {_absent(control.missing)}")
    return InjectableDevices(
        injectable=tuple(found),
        common=merged([device_node_edits(control.present), common]),
        problems=tuple(problems),
    )


def read_nodes(files: Iterable[DeviceFile], host: HostPaths) -> HostNodes:
    """These device files as they are on the host now."""
    present: list[DeviceNode] = []
    missing: list[str] = []
    for file in files:
        node = _read_node(file, host)
        if node is None:
            missing.append(file.source)
        else:
            present.append(node)
    return HostNodes(tuple(present), tuple(missing))


def _of_card(backend: CardDevices, card: Hardware) -> Iterator[tuple[str, str, Sequence[DeviceFile]]]:
    """The devices of a card: CDI name, UUID and device files of each."""
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


def _read_node(file: DeviceFile, host: HostPaths) -> DeviceNode | None:
    path = host.local(file.source)
    try:
        found = path.lstat()
    except OSError:
        return None
    if not (stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)):
        return None
    host_path = host.on_host(path)
    return DeviceNode(
        path=file.path,
        host_path=host_path if host_path != file.path else "",
        type="c" if stat.S_ISCHR(found.st_mode) else "b",
        major=os.major(found.st_rdev),
        minor=os.minor(found.st_rdev),
        file_mode=stat.S_IMODE(found.st_mode),
        permissions=READ_WRITE,
        gid=found.st_gid if found.st_gid and _is_for_group(found.st_mode) else None,
    )


def _is_for_group(mode: int) -> bool:
    """Whether the group of the file may do more than other users."""
    return bool((mode >> 3) & ~mode & (stat.S_IROTH | stat.S_IWOTH))
