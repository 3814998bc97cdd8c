"""Devices, cards and device files for the tests of this folder."""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from gpu_control_plane.agent.backends.interface import CardLost, DeviceFile, Instance
from gpu_control_plane.agent.cdi.edits import DeviceNode, Edits, Mount, device_node_edits
from gpu_control_plane.agent.cdi.spec import Device
from gpu_control_plane.api.gpudevice import PCI, Hardware, MIGCapability, Vendor

CARD: Final = "GPU-7c1bb6a3-7a42-9a0f-65f3-0f5a3f0b2a11"
OTHER: Final = "GPU-0d8e4f52-11c0-4f6d-8a2e-9b7c6d5e4f30"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device files")


def node(minor: int, path: str = "") -> DeviceNode:
    where = path or f"/dev/nvidia{minor}"
    return DeviceNode(path=where, type="c", major=195, minor=minor, file_mode=0o666, permissions="rw")


def device(name: str, minor: int = 0) -> Device:
    return Device(name, device_node_edits([node(minor)]))


def common(version: str = "580.159.04") -> Edits:
    library = f"/usr/lib64/libcuda.so.{version}"
    return Edits(
        env=("NVIDIA_VISIBLE_DEVICES=void",),
        device_nodes=(node(255, "/dev/nvidiactl"),),
        mounts=(Mount(host_path=library, container_path="/usr/lib64/libcuda.so.1", options=("ro", "rbind")),),
    )


def make_node(path: Path, minor: int, *, mode: int = 0o666, group: int = 0, major: int = 195) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
    path.chmod(mode)
    os.chown(path, 0, group)


def card(uuid: str | None, address: str = "0000:65:00.0", *, mig: bool = False) -> Hardware:
    return Hardware(
        vendor=Vendor.NVIDIA,
        product="NVIDIA H200",
        uuid=uuid,
        pci=PCI(vendor="10de", device="2335", class_="0302", address=address),
        mig=MIGCapability(capable=True, enabled=mig),
    )


def instance(profile: str = "1g.18gb+me", start: int = 3) -> Instance:
    return Instance(
        profile=profile, start=start, size=1, uuid=f"MIG-{start}", gpu_instance=start + 7, compute_instance=0
    )


class FakeCards:
    """Cards with device files by address; a card without any is lost."""

    def __init__(
        self,
        cards: Sequence[Hardware],
        files: Mapping[str, Sequence[DeviceFile]],
        *,
        control: Sequence[DeviceFile] = (),
        instances: Sequence[Instance] = (),
    ) -> None:
        self._cards, self._files, self._control, self._instances = cards, files, control, instances

    def cards(self) -> tuple[Hardware, ...]:
        return tuple(self._cards)

    def control_files(self) -> tuple[DeviceFile, ...]:
        return tuple(self._control)

    def device_files(self, address: str) -> tuple[DeviceFile, ...]:
        if address not in self._files:
            raise CardLost("it has fallen off the bus.")
        return tuple(self._files[address])

    def instances(self, address: str) -> tuple[Instance, ...]:
        return tuple(self._instances)

    def instance_files(self, address: str, instance: Instance) -> tuple[DeviceFile, ...]:
        numbers = (instance.gpu_instance, instance.gpu_instance + 1)
        return tuple(DeviceFile(f"/dev/nvidia-caps/nvidia-cap{number}") for number in numbers)
