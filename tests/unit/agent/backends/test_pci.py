"""Cards without a driver: the bus, and what things on it are called."""

import shutil
from pathlib import Path
from typing import Never

import pytest

from gpu_control_plane.agent.backends.pci import PCIBackend
from gpu_control_plane.agent.backends.pci_names import ProductNames
from gpu_control_plane.agent.backends.sysfs import PCIVendor, Sysfs, machine_model
from gpu_control_plane.agent.vendors.nvidia.pci import PCI_VENDOR
from gpu_control_plane.api.gpudevice import PCI, Vendor
from unit.agent.backends.fake_machine import FakeMachine

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
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def named(device: str, lists: tuple[Path, ...], vendor: Vendor = Vendor.NVIDIA, number: str = "10de") -> str:
    pci = PCI(vendor=number, device=device, class_="0302", address="0000:18:00.0")
    others = (PCIVendor(vendor=Vendor.AMD, id="1002", classes=frozenset()),)
    return ProductNames((PCI_VENDOR, *others), lists).of(vendor, pci)


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
    machine: FakeMachine, vendor: str, class_: str, *, counts: bool
) -> None:
    machine.plug("0000:18:00.0", vendor=vendor, class_=class_)
    assert PCIBackend((PCI_VENDOR,), sysfs=machine.host).facts().bus_cards == counts


def test_cards_of_other_vendors_are_seen_when_asked_for(machine: FakeMachine) -> None:
    machine.plug("0000:18:00.0")
    machine.plug("0000:2a:00.0", vendor="1002", device="74a1", class_="1200")
    machine.plug("0000:3a:00.0", vendor="8086", device="0bd5", class_="0380")
    others = (
        PCIVendor(vendor=Vendor.AMD, id="1002", classes=frozenset({"1200"})),
        PCIVendor(vendor=Vendor.INTEL, id="8086", classes=frozenset({"0380"})),
    )
    found = machine.host.cards((PCI_VENDOR, *others))
    assert [card.vendor for card in found] == [Vendor.NVIDIA, Vendor.AMD, Vendor.INTEL]


def test_a_card_says_where_it_is(machine: FakeMachine) -> None:
    machine.plug("0001:18:00.0", numa="1")
    (card,) = PCIBackend((PCI_VENDOR,), sysfs=machine.host).cards()
    assert (card.pci.address, card.pci.device, card.pci.class_, card.numa_node) == ("0001:18:00.0", "2335", "0302", 1)
    assert PCIBackend((PCI_VENDOR,), sysfs=machine.host).details("0001:18:00.0").pci_root == "pci0001:18"


def test_a_machine_that_does_not_know_its_numa_nodes_leaves_them_out(machine: FakeMachine) -> None:
    machine.plug("0000:18:00.0", numa="-1")
    assert machine.host.cards((PCI_VENDOR,))[0].numa_node is None


def test_a_card_that_is_being_pulled_is_none(machine: FakeMachine) -> None:
    machine.plug("0000:18:00.0")
    (machine.host._devices / "0000:18:00.0" / "device").unlink()
    assert machine.host.cards((PCI_VENDOR,)) == ()


def test_a_kernel_without_pci_has_an_empty_bus(machine: FakeMachine) -> None:
    shutil.rmtree(machine.sys / "bus/pci")
    assert machine.host.bus((PCI_VENDOR,)) == ()


def test_where_sys_is_not_mounted_the_bus_is_not_known(tmp_path: Path) -> None:
    sysfs = Sysfs(tmp_path / "sys", tmp_path / "proc")
    assert (sysfs.bus((PCI_VENDOR,)), sysfs.cards((PCI_VENDOR,)), sysfs.boot_id()) == (None, (), "")


@pytest.mark.parametrize("forbidden", ["iterdir", "read_text"])
def test_a_bus_that_may_not_be_read_is_not_an_empty_one(
    machine: FakeMachine, forbidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A security module may hide the list of devices, or the files of each."""
    machine.plug("0000:18:00.0")
    monkeypatch.setattr(Path, forbidden, _refuses)
    assert (
        machine.host.bus((PCI_VENDOR,)),
        machine.host.card("0000:18:00.0", (PCI_VENDOR,)) if forbidden == "read_text" else None,
    ) == (None, None)


def test_virtual_functions_are_no_cards_of_the_host_that_makes_them(machine: FakeMachine) -> None:
    machine.plug("0000:18:00.0")
    machine.split("0000:18:00.0", "0000:18:00.4", "0000:18:00.5", "0000:18:01.0")
    assert [card.pci.address for card in machine.host.cards((PCI_VENDOR,))] == ["0000:18:00.0"]
    assert machine.host.card("0000:18:00.4", (PCI_VENDOR,)) is None


def test_a_virtual_function_is_the_card_of_the_vm_that_has_it(machine: FakeMachine) -> None:
    """In the VM there is nothing behind it: no link leads to a physical function."""
    machine.plug("0000:06:00.0")
    assert [card.pci.address for card in machine.host.cards((PCI_VENDOR,))] == ["0000:06:00.0"]


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


def test_the_machine_is_what_its_firmware_says(tmp_path: Path) -> None:
    assert machine_model(tmp_path) == "unknown"
    folder = tmp_path / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    (folder / "product_name").write_text("DGX H200\n")
    assert machine_model(tmp_path) == "DGX H200"


def _refuses(*_arguments: object) -> Never:
    raise PermissionError(13, "Permission denied")
