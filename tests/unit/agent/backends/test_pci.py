"""Cards without a driver: the bus, and what things on it are called."""

from pathlib import Path

import pytest

from gpu_control_plane.agent.backends.factory import open_backend
from gpu_control_plane.agent.backends.host import Host
from gpu_control_plane.agent.backends.interface import DriverUnavailable
from gpu_control_plane.agent.backends.pci import PCIBackend
from gpu_control_plane.agent.backends.pci_names import ProductNames
from gpu_control_plane.api.gpudevice import PCI, Vendor
from unit.agent.backends.machine_room import MachineRoom

LIST = """\
# A comment
1002  Advanced Micro Devices, Inc. [AMD/ATI]
\t74a1  Aqua Vanjaram [Instinct MI300X]
10de  NVIDIA Corporation
\t2335  GH100 [H200 SXM 141GB]
\t\t10de 18be  Another name of the same card
\t1eb8  TU104GL Tesla T4
10df  Emulex Corporation
\t2335  Not a graphics card
C 03  Display controller
\t02  3D controller
"""


@pytest.fixture
def room(tmp_path: Path) -> MachineRoom:
    return MachineRoom(tmp_path)


def named(device: str, lists: tuple[Path, ...], vendor: Vendor = Vendor.NVIDIA, number: str = "10de") -> str:
    pci = PCI(vendor=number, device=device, class_="0302", address="0000:18:00.0")
    return ProductNames(lists).of(vendor, pci)


@pytest.mark.parametrize(
    ("vendor", "class_", "counts"),
    [
        ("10de", "0302", True),
        ("10de", "0300", True),
        ("10de", "0403", False),
        ("10de", "0680", False),
        ("1002", "0380", False),
        ("8086", "0200", False),
        ("1af4", "0302", False),
    ],
)
def test_only_cards_of_nvidia_that_compute_or_draw_count(
    room: MachineRoom, vendor: str, class_: str, *, counts: bool
) -> None:
    room.plug("0000:18:00.0", vendor=vendor, class_=class_)
    assert PCIBackend(host=room.host).facts().bus_cards == counts


def test_cards_of_other_vendors_are_seen_when_asked_for(room: MachineRoom) -> None:
    room.plug("0000:18:00.0")
    room.plug("0000:2a:00.0", vendor="1002", device="74a1", class_="1200")
    room.plug("0000:3a:00.0", vendor="8086", device="0bd5", class_="0380")
    assert [card.vendor for card in room.host.cards(Vendor)] == [Vendor.NVIDIA, Vendor.AMD, Vendor.INTEL]


def test_a_card_says_where_it_is(room: MachineRoom) -> None:
    room.plug("0001:18:00.0", numa="1")
    (card,) = PCIBackend(host=room.host).cards()
    assert (card.pci.address, card.pci.device, card.pci.class_, card.numa_node) == ("0001:18:00.0", "2335", "0302", 1)
    assert PCIBackend(host=room.host).details("0001:18:00.0").pci_root == "pci0001:18"


def test_a_machine_that_does_not_know_its_numa_nodes_leaves_them_out(room: MachineRoom) -> None:
    room.plug("0000:18:00.0", numa="-1")
    assert room.host.cards()[0].numa_node is None


def test_a_card_that_is_being_pulled_is_none(room: MachineRoom) -> None:
    room.plug("0000:18:00.0")
    (room.host._devices / "0000:18:00.0" / "device").unlink()
    assert room.host.cards() == ()


def test_a_machine_without_a_bus_has_no_cards(tmp_path: Path) -> None:
    host = Host(tmp_path / "sys", tmp_path / "proc")
    assert (host.cards(), host.boot_id()) == ((), "")


def test_products_are_called_as_the_hosts_list_says(tmp_path: Path) -> None:
    listed = tmp_path / "pci.ids"
    listed.write_text(LIST)
    lists = (tmp_path / "missing", listed)
    assert named("2335", lists) == "NVIDIA H200 SXM 141GB"
    assert named("1eb8", lists) == "NVIDIA TU104GL Tesla T4"
    assert named("74a1", lists, Vendor.AMD, "1002") == "AMD Instinct MI300X"


def test_products_that_no_list_names_have_a_name_all_the_same(tmp_path: Path) -> None:
    assert named("2901", ()) == "NVIDIA B200"
    assert named("ffff", ()) == "NVIDIA device ffff"
    assert named("2901", (), Vendor.INTEL, "8086") == "Intel device 2901"


def test_a_node_without_a_driver_gets_its_bus_and_the_reason(
    room: MachineRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.plug("0000:18:00.0")
    monkeypatch.setattr("ctypes.CDLL.__init__", _nothing_loads)
    asked: list[str] = []
    backend = open_backend((Path("/nowhere"),), find_library=lambda name, _roots: asked.append(name), host=room.host)
    assert isinstance(backend, PCIBackend)
    assert "Install the NVIDIA driver" in backend.reason
    assert asked == ["libnvidia-ml.so.1"]
    assert (backend.facts().driver, len(backend.cards())) == (None, 1)
    with pytest.raises(DriverUnavailable, match="Install the NVIDIA driver"):
        backend.set_mig_mode("0000:18:00.0", enabled=True)


def test_a_library_found_elsewhere_is_tried_too(
    room: MachineRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL.__init__", _nothing_loads)
    elsewhere = tmp_path / "libnvidia-ml.so.1"
    backend = open_backend(find_library=lambda _name, _roots: elsewhere, host=room.host)
    assert isinstance(backend, PCIBackend)
    assert str(elsewhere) in backend.reason


def _nothing_loads(*_arguments: object, **_options: object) -> None:
    raise OSError("cannot open shared object file")
