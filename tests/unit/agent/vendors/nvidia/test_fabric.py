"""Fabric Manager: when it has to run, and what is said when it does not."""

import socket
from pathlib import Path

import pytest

from gpu_control_plane.agent.backends.interface import Backend, Signals
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.vendors.nvidia.checks import NVIDIAChecks
from gpu_control_plane.agent.vendors.nvidia.fabric import FabricFacts, check_fabric, observe_fabric
from gpu_control_plane.api.gpunodestate import StepResult
from unit.agent.driver.trees import VERSION, shared_library
from unit.agent.vendors.nvidia.test_checks import OPEN, Cards, write

CARD = "0000:18:00.0"


class CardsOnFabric(Cards):
    def __init__(self, *, pending: bool = False) -> None:
        super().__init__()
        self._pending = pending

    def signals(self, _address: str) -> Signals:
        return Signals(fabric_pending=self._pending)


def cards(*, pending: bool = False) -> Backend:
    return CardsOnFabric(pending=pending)  # type: ignore[return-value] # the calls that are not made are left out


def machine(root: Path, *, switches: int = 0, manager: bool = False) -> Path:
    """A machine with a card, NVSwitches, a bridge of somebody else's, and a working driver of the host."""
    bus = [("0x10de", "0x030200")] + [("0x10de", "0x068000")] * switches + [("0x8086", "0x068000")]
    for number, (vendor, kind) in enumerate(bus):
        write(root, f"sys/bus/pci/devices/0000:{number:02x}:00.0/vendor", f"{vendor}\n")
        write(root, f"sys/bus/pci/devices/0000:{number:02x}:00.0/class", f"{kind}\n")
    write(root, "proc/1/comm", "systemd\n")
    if manager:
        write(root, "proc/4711/comm", "nv-fabricmanage\n")
    write(root, "proc/driver/nvidia/version", OPEN)
    for file in ("dev/nvidiactl", f"dev/by-address/{CARD}"):
        write(root, file)
    return root


def with_driver(root: Path) -> Path:
    """The driver's library under this root."""
    folder = root / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / f"libcuda.so.{VERSION}").write_bytes(shared_library("libcuda.so.1"))
    (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{VERSION}")
    return root


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (FabricFacts(), None),
        (FabricFacts(manager_runs=True), None),
        (FabricFacts(switches=4, manager_runs=True), None),
        (FabricFacts(switches=4), "4 NVSwitches. Install nvidia-fabricmanager of the driver's own version 580.159.04"),
        (FabricFacts(waiting_cards=(CARD,)), f"{CARD} wait for Fabric Manager, which does not run"),
        (FabricFacts(switches=4, manager_runs=True, waiting_cards=(CARD,)), "journalctl -u nvidia-fabricmanager"),
    ],
)  # fmt: skip
def test_what_is_said(facts: FabricFacts, said: str | None) -> None:
    found = check_fabric(facts, "580.159.04")
    assert (found is None) is (said is None)
    assert said is None or (found is not None and said in found.message and found.result is StepResult.FAILED)


def test_switches_are_counted_on_the_bus_and_the_manager_is_found_by_its_process(tmp_path: Path) -> None:
    assert observe_fabric(cards(), machine(tmp_path, switches=4)) == FabricFacts(switches=4)
    write(tmp_path, "proc/4711/comm", "nv-fabricmanage\n")
    assert observe_fabric(cards(pending=True), tmp_path) == FabricFacts(
        switches=4, manager_runs=True, waiting_cards=(CARD,)
    )


def test_the_manager_is_found_by_its_socket_where_processes_are_hidden(tmp_path: Path, short_socket: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/nvidia-fabricmanager").symlink_to(short_socket.parent)
    assert observe_fabric(cards(), tmp_path).manager_runs


@pytest.fixture
def short_socket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fm") / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    return path


@pytest.mark.parametrize(
    ("switches", "manager", "result"),
    [(0, False, StepResult.PASSED), (4, False, StepResult.FAILED), (4, True, StepResult.PASSED)],
)
def test_a_host_without_a_fabric_manager_fails_the_check_of_its_driver(
    tmp_path: Path, switches: int, manager: bool, result: StepResult
) -> None:
    root = with_driver(machine(tmp_path, switches=switches, manager=manager))
    search = DriverSearch(host=HostPaths(root), driver_roots=(root,))
    assert NVIDIAChecks(search, None, ()).check_driver(cards()).outcome.result is result


def test_a_driver_container_brings_its_own(tmp_path: Path) -> None:
    root = machine(tmp_path, switches=4)
    container = with_driver(root / "run/nvidia/driver")
    search = DriverSearch(host=HostPaths(root), driver_roots=(container,), container_roots=(container,))
    assert NVIDIAChecks(search, None, ()).check_driver(cards()).outcome.result is StepResult.PASSED
