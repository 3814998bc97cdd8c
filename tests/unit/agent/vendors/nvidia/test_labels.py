"""The labels are GFD's: the H200 column of its table, MIG, sharing, and nodes with several models."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.agent.backends.interface import Details, Instance
from gpu_control_plane.agent.simulated.models import PROFILES
from gpu_control_plane.agent.vendors.nvidia.labels import (
    PREFIX,
    TIMESTAMP,
    VGPU,
    GFDFacts,
    InstanceAttributes,
    MIGStrategy,
    label_value,
    labels,
)
from gpu_control_plane.api.gpudevice import PCI, Hardware, MIGCapability, Vendor
from gpu_control_plane.api.gpunodestate import Driver

DRIVER = Driver(version="580.159.04", cuda_version="13.0")
SMALL = InstanceAttributes(multiprocessors=16, copy=1, decoder=1, encoder=0, jpeg=1, ofa=0)

H200 = {
    "cuda.driver-version.major": "580",
    "cuda.driver-version.minor": "159",
    "cuda.driver-version.revision": "04",
    "cuda.driver-version.full": "580.159.04",
    "cuda.driver.major": "580",
    "cuda.driver.minor": "159",
    "cuda.driver.rev": "04",
    "cuda.runtime-version.major": "13",
    "cuda.runtime-version.minor": "0",
    "cuda.runtime-version.full": "13.0",
    "cuda.runtime.major": "13",
    "cuda.runtime.minor": "0",
    "gpu.product": "NVIDIA-H200",
    "gpu.count": "1",
    "gpu.replicas": "1",
    "gpu.memory": "143771",
    "gpu.family": "hopper",
    "gpu.compute.major": "9",
    "gpu.compute.minor": "0",
    "gpu.machine": "ProLiant-DL380-Gen11",
    "gpu.mode": "compute",
    "gpu.sharing-strategy": "none",
    "mig.capable": "true",
    "mig.strategy": "none",
    "mps.capable": "false",
    "vgpu.present": "false",
    "gfd.timestamp": "1700000000",
}
INSTANCE = {
    "count": "7",
    "replicas": "1",
    "sharing-strategy": "none",
    "memory": "16384",
    "product": "NVIDIA-H200-MIG-1g.18gb",
    "multiprocessors": "16",
    "slices.gi": "1",
    "slices.ci": "1",
    "engines.copy": "1",
    "engines.decoder": "1",
    "engines.encoder": "0",
    "engines.jpeg": "1",
    "engines.ofa": "0",
}


def card(index: int = 0, profile: str = "H200-141", *, cut: bool = False) -> Hardware:
    made = PROFILES[profile]
    mig = made.mig and MIGCapability.of(made.mig.profiles, enabled=cut)
    return Hardware(
        vendor=Vendor.NVIDIA,
        product=made.product,
        pci=PCI(vendor="10de", device=made.pci_device, class_=made.pci_class, address=f"0000:{index:02x}:00.0"),
        memory_mib=made.memory_mib,
        compute_capability=made.compute_capability,
        mig=mig,
    )


def instances(*profiles: str) -> tuple[Instance, ...]:
    return tuple(
        Instance(profile=name, start=place, size=1, uuid=f"MIG-{place}", gpu_instance=place, compute_instance=0)
        for place, name in enumerate(profiles)
    )


def said(facts: GFDFacts) -> dict[str, str]:
    return {name.removeprefix(PREFIX): value for name, value in labels(facts, {}, 1_700_000_000.9).items()}


def test_an_h200_has_the_labels_gfd_gives_it() -> None:
    assert said(GFDFacts(cards=(card(),), driver=DRIVER, machine="ProLiant DL380 (Gen11)")) == H200


def test_the_timestamp_moves_only_when_another_label_does() -> None:
    facts = GFDFacts(cards=(card(),), driver=DRIVER, details={"0000:00:00.0": Details(index=0, clique="c.1")})
    first = labels(facts, {}, 100.0)
    assert labels(facts, first, 200.0) == first
    without = GFDFacts(cards=(card(),), driver=DRIVER)
    assert labels(without, first, 300.0)[TIMESTAMP] == "300"
    assert labels(facts, {**first, PREFIX + "gpu.count": "8"}, 400.0)[TIMESTAMP] == "400"


def test_time_slicing_is_told_in_product_replicas_and_strategy() -> None:
    found = said(GFDFacts(cards=(card(),), replicas={"0000:00:00.0": 4}))
    assert (found["gpu.product"], found["gpu.replicas"]) == ("NVIDIA-H200-SHARED", "4")
    assert found["gpu.sharing-strategy"] == "time-slicing"


def test_with_strategy_single_instances_take_the_place_of_cards() -> None:
    facts = GFDFacts(
        cards=(card(0, cut=True), card(1, cut=True)),
        strategy=MIGStrategy.SINGLE,
        instances={f"0000:{index:02x}:00.0": instances(*["1g.18gb"] * 7) for index in range(2)},
        attributes={"1g.18gb": SMALL},
    )
    found = said(facts)
    assert {name: found[f"gpu.{name}"] for name in INSTANCE} == INSTANCE | {"count": "14"}
    assert (found["mig.strategy"], found["gpu.family"]) == ("single", "hopper")


@pytest.mark.parametrize(
    "layout",
    [
        {"0000:00:00.0": instances("1g.18gb", "2g.35gb"), "0000:01:00.0": instances("1g.18gb")},
        {"0000:00:00.0": instances("1g.18gb")},
        {},
    ],
    ids=["different profiles", "an empty card", "nothing but empty cards"],
)
def test_with_strategy_single_a_node_cut_otherwise_is_invalid(layout: dict[str, tuple[Instance, ...]]) -> None:
    facts = GFDFacts(cards=(card(0, cut=True), card(1, cut=True)), strategy=MIGStrategy.SINGLE, instances=layout)
    found = said(facts)
    assert found["gpu.product"] == "NVIDIA-H200-MIG-INVALID"
    assert (found["gpu.count"], found["gpu.replicas"], found["gpu.memory"]) == ("0", "0", "0")


def test_with_strategy_single_a_whole_card_beside_a_cut_one_is_invalid() -> None:
    layout = {"0000:00:00.0": instances("1g.18gb")}
    facts = GFDFacts(cards=(card(0, cut=True), card(1)), strategy=MIGStrategy.SINGLE, instances=layout)
    assert said(facts)["gpu.product"] == "NVIDIA-H200-MIG-INVALID"


def test_with_strategy_single_a_node_without_mig_has_the_labels_of_whole_cards() -> None:
    found = said(GFDFacts(cards=(card(),), strategy=MIGStrategy.SINGLE))
    assert (found["gpu.product"], found["mig.strategy"]) == ("NVIDIA-H200", "single")


def test_with_strategy_mixed_each_profile_has_labels_of_its_own() -> None:
    facts = GFDFacts(
        cards=(card(cut=True),),
        strategy=MIGStrategy.MIXED,
        instances={"0000:00:00.0": instances("1g.18gb+me", *["1g.18gb"] * 2, "3g.71gb")},
        attributes={"1g.18gb": SMALL},
    )
    found = said(facts)
    assert {name: found[f"mig-1g.18gb.{name}"] for name in INSTANCE} == INSTANCE | {"count": "2"}
    assert found["mig-1g.18gb.me.product"] == "NVIDIA-H200-MIG-1g.18gb.me"
    assert (found["mig-3g.71gb.slices.gi"], found["mig-3g.71gb.memory"]) == ("3", "71424")
    assert "mig-3g.71gb.multiprocessors" not in found
    assert (found["gpu.product"], found["gpu.replicas"], found["gpu.memory"]) == ("NVIDIA-H200", "0", "143771")


def test_a_node_with_several_models_is_labelled_by_the_most_common_one() -> None:
    found = said(GFDFacts(cards=(card(0, "L40S"), card(1), card(2))))
    assert (found["gpu.product"], found["gpu.count"]) == ("NVIDIA-H200", "2")


def test_among_equally_common_models_the_lowest_address_decides_in_any_order() -> None:
    cards = (card(0, "L40S"), card(1))
    assert said(GFDFacts(cards=cards)) == said(GFDFacts(cards=cards[::-1]))
    assert said(GFDFacts(cards=cards))["gpu.product"] == "NVIDIA-L40S"


@pytest.mark.parametrize(
    ("profiles", "mode"),
    [(["H200-141"], "compute"), (["RTX-3060"], "graphics"), (["H200-141", "RTX-3060"], "unknown")],
)
def test_the_mode_follows_the_pci_class_when_all_agree(profiles: list[str], mode: str) -> None:
    cards = tuple(card(index, profile) for index, profile in enumerate(profiles))
    assert said(GFDFacts(cards=cards))["gpu.mode"] == mode


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        ("7.0", "volta"),
        ("7.5", "turing"),
        ("8.0", "ampere"),
        ("8.6", "ampere"),
        ("8.9", "ada-lovelace"),
        ("9.0", "hopper"),
        ("10.0", "blackwell"),
        ("12.0", "blackwell"),
        ("42.0", "undefined"),
    ],
)
def test_the_family_follows_the_compute_capability(capability: str, family: str) -> None:
    one = msgspec.structs.replace(card(), compute_capability=capability)
    assert said(GFDFacts(cards=(one,)))["gpu.family"] == family


def test_a_clique_is_told_when_all_cards_are_in_it() -> None:
    cards = (card(0), card(1))
    one, two = Details(index=0, clique="uuid.1"), Details(index=1, clique="uuid.2")
    assert said(GFDFacts(cards=cards, details={"0000:00:00.0": one}))["gpu.clique"] == "uuid.1"
    assert "gpu.clique" not in said(GFDFacts(cards=cards, details={"0000:00:00.0": one, "0000:01:00.0": two}))


def test_a_virtual_card_names_the_driver_below_it() -> None:
    found = said(GFDFacts(cards=(card(),), vgpu=VGPU("580.82", "r580_00")))
    assert found["vgpu.present"] == "true"
    assert (found["vgpu.host-driver-version"], found["vgpu.host-driver-branch"]) == ("580.82", "r580_00")


def test_a_node_without_a_card_of_nvidia_gets_no_labels() -> None:
    other = msgspec.structs.replace(card(), vendor=Vendor.AMD)
    assert labels(GFDFacts(cards=(other,), driver=DRIVER), {}, 1.0) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NVIDIA H200", "NVIDIA-H200"),
        ("Tesla  V100 (SXM2)", "Tesla-V100-SXM2"),
        ("1g.18gb+me", "1g.18gb.me"),
        ("--x--", "x"),
        ("?", ""),
        ("a" * 62 + "-b", "a" * 62),
    ],
)
def test_values_are_spelt_as_a_label_allows(text: str, value: str) -> None:
    assert label_value(text) == value


@given(st.text())
def test_whatever_the_hardware_says_is_a_valid_label(text: str) -> None:
    assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", label_value(text))
