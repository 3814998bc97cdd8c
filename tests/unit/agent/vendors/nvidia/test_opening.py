"""Which driver a node's backend talks to, and whose driver that is said to be."""

from pathlib import Path

import pytest

from gpu_control_plane.agent.backends.interface import DriverUnavailable
from gpu_control_plane.agent.backends.pci import PCIBackend
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.vendors.nvidia.nvml import NVMLBackend, open_nvml, opening
from gpu_control_plane.agent.vendors.registry import open_backend
from gpu_control_plane.api.gpunodestate import DriverSource
from unit.agent.backends.fake_machine import FakeMachine
from unit.agent.driver.trees import VERSION, Tree
from unit.agent.vendors.nvidia.fake_nvml import FakeNVML

FOLDER = "/usr/lib/x86_64-linux-gnu"
LIBRARY = f"libnvidia-ml.so.{VERSION}"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path / "machine")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The libraries that are loaded, none of which can be."""
    tried: list[str] = []

    def refuse(_library: object, name: str, *_arguments: object, **_options: object) -> None:
        tried.append(name)
        raise OSError("cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL.__init__", refuse)
    return tried


def test_the_library_of_every_root_is_tried_and_last_its_name(
    machine: FakeMachine, tmp_path: Path, tried: list[str]
) -> None:
    """What a package left behind on the host must not hide the driver that a container has loaded."""
    host = Tree(tmp_path / "host").driver(FOLDER, "535.1.2")
    container = Tree(tmp_path / "host/run/nvidia/driver").driver(FOLDER)
    search = DriverSearch(driver_roots=(host.root, tmp_path / "absent"), container_roots=(container.root,))
    with pytest.raises(DriverUnavailable) as refused:
        open_nvml(search, machine.host)
    assert tried == [
        str(host.at(f"{FOLDER}/libnvidia-ml.so.535.1.2")),
        str(container.at(f"{FOLDER}/{LIBRARY}")),
        "libnvidia-ml.so.1",
    ]
    assert tried[0] in str(refused.value), "the first library is the one to repair"


def test_whose_driver_it_is_depends_on_where_its_library_lies(machine: FakeMachine, tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("host", "container")]
    for root in roots:
        Tree(root).driver(FOLDER)
    search = DriverSearch(host=HostPaths(roots[0]), driver_roots=(roots[0],), container_roots=(roots[1],))
    found = [backend.source for backend in opening.candidates(search, machine.host)]
    assert found == [DriverSource.HOST, DriverSource.CONTAINER, None], (
        "of what the loader finds by name it is not known"
    )


@pytest.mark.parametrize("source", [*DriverSource, None])
def test_whose_driver_it_is_is_published_as_far_as_it_is_known(
    machine: FakeMachine, source: DriverSource | None
) -> None:
    backend = NVMLBackend(source=source, sysfs=machine.host, nvml=FakeNVML())
    backend.open()
    driver = backend.facts().driver
    assert driver is not None
    assert driver.source is source


def test_a_node_without_a_driver_gets_its_bus_and_the_reason(machine: FakeMachine, tried: list[str]) -> None:
    machine.plug("0000:18:00.0")
    backend = open_backend(DriverSearch(driver_roots=(Path("/nowhere"),)), machine.host)
    assert isinstance(backend, PCIBackend)
    assert "Install the NVIDIA driver" in backend.reason
    assert tried == ["libnvidia-ml.so.1"]
    assert (backend.facts().driver, len(backend.cards())) == (None, 1)
    with pytest.raises(DriverUnavailable, match="Install the NVIDIA driver"):
        backend.set_mig_mode("0000:18:00.0", enabled=True)
