"""Cards are called by their names without a driver, whether the host has a list of PCI devices or none."""

from pathlib import Path

import pytest

from gpu_control_plane.agent.backends.pci_names import ProductNames
from gpu_control_plane.agent.vendors.nvidia.pci import PCI_VENDOR
from gpu_control_plane.api.gpudevice import PCI, Vendor
from helm.nfd.cards import CARDS, Function


def name_of(names: ProductNames, function: Function, vendor: Vendor = Vendor.NVIDIA) -> str:
    pci = PCI(vendor=function.vendor, device=function.device, class_=function.class_, address="0000:01:00.0")
    return names.of(vendor, pci)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: f"{card.device}-{card.class_}")
def test_cards_of_clusters_are_known_without_a_list(card: Function) -> None:
    assert name_of(ProductNames((PCI_VENDOR,), lists=()), card) == f"NVIDIA {card.name}"


def test_a_card_that_an_old_list_lacks_is_known_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "pci.ids").write_text("10de  NVIDIA Corporation\n\t1eb8  TU104GL [Tesla T4 by the list]\n")
    names = ProductNames((PCI_VENDOR,), lists=(tmp_path / "pci.ids",))
    called = {card.device: name_of(names, card) for card in CARDS}
    assert called["1eb8"] == "NVIDIA Tesla T4 by the list"
    assert called["2901"] == "NVIDIA B200"


def test_a_card_that_no_list_has_goes_by_its_number() -> None:
    assert name_of(ProductNames((PCI_VENDOR,), lists=()), Function("10de", "ffff", "0302", "")) == "NVIDIA device ffff"
    other = Function("1002", "2330", "0302", "")
    assert name_of(ProductNames((PCI_VENDOR,), lists=()), other, Vendor.AMD) == "AMD device 2330"
