"""What the checks see of NVIDIA's driver, from files as real machines have them, and what they make of it."""

from pathlib import Path

import pytest

from gpu_control_plane.agent.backends.interface import Backend, DeviceFile, DriverUnavailable
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.vendors.nvidia.checks import (
    GDRCOPY,
    NVIDIA_FS,
    DriverFacts,
    NVIDIAChecks,
    check_driver,
    check_module,
    loaded_modules,
    module_version,
    observe_driver,
)
from gpu_control_plane.api.gpudevice import PCI, Hardware, Vendor
from gpu_control_plane.api.gpunodestate import Driver, StepResult
from gpu_control_plane.api.nodefeature import NodeFacts

P, F = StepResult.PASSED, StepResult.FAILED
LIBCUDA = Path("/usr/lib/libcuda.so.580.159.04")
UNVERSIONED = Path("/usr/lib/libcuda.so.1")

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


def test_modules_beside_the_driver_are_checked_when_asked_for(tmp_path: Path) -> None:
    write(tmp_path, "proc/modules", "gdrdrv 24576 0 - Live 0x0 (OE)\nnvidia_fs 4096 1 nvidia, Live 0x0\n")
    write(tmp_path, "dev/nvidia-fs3")
    assert loaded_modules(tmp_path) == {"gdrdrv", "nvidia_fs"}
    search = DriverSearch(host=HostPaths(tmp_path))
    found = NVIDIAChecks(search, None, (NVIDIA_FS, GDRCOPY)).check_extras()
    assert [outcome and outcome.result for outcome in found.values()] == [P, F]
    assert NVIDIAChecks(search, None, ()).check_extras() == {NVIDIA_FS: None, GDRCOPY: None}


def test_a_driver_is_described_with_the_files_that_are_missing(tmp_path: Path) -> None:
    write(tmp_path, "proc/driver/nvidia/version", OPEN)
    write(tmp_path, "dev/nvidiactl")
    found = observe_driver(backend(), Path("/usr/lib/libcuda.so.580.159.04"), HostPaths(tmp_path))
    assert (found.module, found.version, found.library_version) == ("580.159.04",) * 3
    assert found.missing_files == ("/dev/by-address/0000:18:00.0",)


def test_a_driver_that_refuses_is_described_with_its_reason(tmp_path: Path) -> None:
    found = observe_driver(backend("library and module differ"), None, HostPaths(tmp_path))
    assert (found.refused, found.module) == ("library and module differ", None)


@pytest.mark.parametrize(
    ("facts", "result", "said"),
    [
        (DriverFacts(module="580.159.04", version="580.159.04", library=LIBCUDA), P, "Driver 580.159.04 is loaded"),
        (DriverFacts(module="580.159.04", version="580.159.04", library=UNVERSIONED), P, "is loaded"),
        (DriverFacts(refused="no driver"), F, "modprobe nvidia"),
        (DriverFacts(module="570.1.2", library=LIBCUDA, refused="version mismatch"), F, "reload the module"),
        (DriverFacts(module="570.1.2", version="580.159.04", library=UNVERSIONED), F, "580.159.04"),
        (DriverFacts(module="580.159.04", library=LIBCUDA, refused="no permission"), F, "no permission"),
        (DriverFacts(module="5.8", missing_files=("/dev/nvidia0",)), F, "/dev/nvidia0. Run nvidia-modprobe"),
        (DriverFacts(module="580.159.04", version="580.159.04"), F, "libcuda.so.1 is not on the node"),
    ],
)
def test_driver(facts: DriverFacts, result: StepResult, said: str) -> None:
    found = check_driver(facts)
    assert found.result is result
    assert said in found.message


@pytest.mark.parametrize(
    ("loaded", "device", "result", "said"),
    [
        ({"nvidia_fs"}, True, P, "is loaded"),
        ({"nvidia"}, True, F, "modprobe nvidia_fs"),
        ({"nvidia_fs"}, False, F, "/dev/nvidia-fs0 is missing"),
    ],
)
def test_modules(loaded: set[str], device: bool, result: StepResult, said: str) -> None:
    found = check_module("nvidia_fs", "nvidia-fs0", loaded, device_exists=device)
    assert found.result is result
    assert said in found.message
