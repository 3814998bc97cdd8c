"""What the validator sees of a node, from files as real machines have them."""

from pathlib import Path

import pytest

from gpu_control_plane.agent.backends.interface import Backend, DeviceFile, DriverUnavailable
from gpu_control_plane.agent.cdi.edits import DeviceNode, Edits, Mount
from gpu_control_plane.agent.cdi.spec import Device, encode, spec
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.validator.observe import (
    devices_matching,
    loaded_modules,
    module_version,
    observe_cdi,
    observe_driver,
)
from gpu_control_plane.api.gpudevice import PCI, Hardware, Vendor
from gpu_control_plane.api.gpunodestate import Driver
from gpu_control_plane.api.nodefeature import NodeFacts

OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@host)  Tue Jan 13
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:\n"
ARM = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.86.15  Release Build\n"
OLD = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82  Thu Jan  1\n"


class Cards:
    """The few calls of a backend that an observer makes."""

    def __init__(self, refused: str | None = None) -> None:
        self._refused = refused

    def open(self) -> None:
        if self._refused:
            raise DriverUnavailable(self._refused)

    def facts(self) -> NodeFacts:
        return NodeFacts(bus_cards=1, driver=Driver(version="580.159.04"))

    def cards(self) -> tuple[Hardware, ...]:
        pci = PCI(vendor="10de", device="2335", class_="0302", address="0000:18:00.0")
        return (Hardware(vendor=Vendor.NVIDIA, product="NVIDIA H200", pci=pci),)

    def control_files(self) -> tuple[DeviceFile, ...]:
        return (DeviceFile("/dev/nvidiactl"),)

    def device_files(self, address: str) -> tuple[DeviceFile, ...]:
        return (DeviceFile("/dev/nvidia0", f"/dev/by-address/{address}"),)


def backend(refused: str | None = None) -> Backend:
    return Cards(refused)  # type: ignore[return-value] # the calls that are not made are left out


def write(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize(
    ("text", "version"), [(OPEN, "580.159.04"), (CLOSED, "535.104.05"), (ARM, "570.86.15"), (OLD, "470.82")]
)
def test_the_modules_version_is_read_whatever_its_flavour(tmp_path: Path, text: str, version: str) -> None:
    write(tmp_path, "proc/driver/nvidia/version", text)
    assert module_version(tmp_path) == version


def test_without_a_module_there_is_no_version(tmp_path: Path) -> None:
    assert module_version(tmp_path) is None


def test_loaded_modules_and_their_device_files_are_found(tmp_path: Path) -> None:
    write(tmp_path, "proc/modules", "gdrdrv 24576 0 - Live 0x0 (OE)\nnvidia 4096 1 gdrdrv, Live 0x0\n")
    write(tmp_path, "dev/nvidia-fs3")
    assert loaded_modules(tmp_path) == {"gdrdrv", "nvidia"}
    assert devices_matching("nvidia-fs*", tmp_path)
    assert not devices_matching("gdrdrv", tmp_path)


def test_a_driver_is_described_with_the_files_that_are_missing(tmp_path: Path) -> None:
    write(tmp_path, "proc/driver/nvidia/version", OPEN)
    write(tmp_path, "dev/nvidiactl")
    found = observe_driver(backend(), Path("/usr/lib/libcuda.so.580.159.04"), tmp_path)
    assert (found.module, found.version, found.library_version) == ("580.159.04",) * 3
    assert found.missing_files == ("/dev/by-address/0000:18:00.0",)


def test_a_driver_that_refuses_is_described_with_its_reason(tmp_path: Path) -> None:
    found = observe_driver(backend("library and module differ"), None, tmp_path)
    assert (found.refused, found.module) == ("library and module differ", None)


def test_a_cdi_device_whose_files_do_not_exist_is_found(tmp_path: Path) -> None:
    write(tmp_path, "dev/nvidia0")
    nodes = [DeviceNode(path=f"/dev/nvidia{index}", type="c", major=195, minor=index) for index in range(2)]
    devices = [Device(f"GPU-{node.minor}", Edits(device_nodes=(node,))) for node in nodes]
    common = Edits(mounts=(Mount(host_path="/usr/lib/libcuda.so.1", container_path="/usr/lib/libcuda.so.1"),))
    path = tmp_path / "run/cdi.json"
    write(tmp_path, "run/cdi.json")
    path.write_bytes(encode(spec(devices, common)))
    found = observe_cdi(path, HostPaths(tmp_path))
    assert found.devices == {"GPU-0": ("/usr/lib/libcuda.so.1",), "GPU-1": ("/usr/lib/libcuda.so.1", "/dev/nvidia1")}
    write(tmp_path, "usr/lib/libcuda.so.1")
    assert observe_cdi(path, HostPaths(tmp_path)).devices == {"GPU-0": (), "GPU-1": ("/dev/nvidia1",)}


def test_a_cdi_file_that_is_missing_or_damaged_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "cdi.json"
    assert observe_cdi(path, HostPaths(tmp_path), cdi_enabled=True).damaged is None
    path.write_text("{")
    assert str(path) in (observe_cdi(path, HostPaths(tmp_path)).damaged or "")
