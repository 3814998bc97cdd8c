"""A card's name is valid, stable and its own."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api import canonical_pci_address, inventory_id
from gpu_control_plane.api.shapes import PCI_ADDRESS

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

nodes = st.from_regex(SUBDOMAIN, fullmatch=True).filter(lambda name: len(name) <= 253)
long_nodes = st.integers(230, 253).flatmap(
    lambda size: st.text("ab1-.", min_size=size, max_size=size).filter(SUBDOMAIN.fullmatch)
) | st.integers(230, 253).map(lambda size: "n" * (size - 2) + "-x")
addresses = st.builds(
    "{:04x}:{:02x}:{:02x}.{:x}".format,
    st.integers(0, 0xFFFF) | st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFF),
    st.integers(0, 0x1F),
    st.integers(0, 7),
)
places = st.tuples(nodes | long_nodes, addresses)


@pytest.mark.parametrize(
    ("node", "address", "expected"),
    [
        ("worker-3", "0000:65:00.0", "worker-3-0000-65-00-0"),
        ("worker-3.example.com", "0000:65:00.0", "worker-3.example.com-0000-65-00-0"),
        ("worker-3", "00000000:65:00.0", "worker-3-0000-65-00-0"),
        ("worker-3", "0000:AB:1F.7", "worker-3-0000-ab-1f-7"),
        ("worker-3", "10000:01:00.0", "worker-3-10000-01-00-0"),
        ("n" * 240, "0000:65:00.0", "n" * 240 + "-0000-65-00-0"),
        ("n" * 241, "0000:65:00.0", "n" * 227 + "-a3938a15ac27-0000-65-00-0"),
    ],
)
def test_a_card_is_named_after_its_place(node: str, address: str, expected: str) -> None:
    assert inventory_id(node, address) == expected


@given(places)
def test_a_name_is_always_a_valid_object_name(place: tuple[str, str]) -> None:
    name = inventory_id(*place)
    assert len(name) <= 253
    assert SUBDOMAIN.fullmatch(name)


@given(places, places)
def test_two_places_never_share_a_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (inventory_id(*one) == inventory_id(*other)) == (one == other)


@given(nodes, nodes, addresses, addresses)
def test_a_name_tells_its_place_apart_even_where_nodes_look_like_addresses(
    node: str, other: str, address: str, second: str
) -> None:
    tricky = inventory_id(node, second)
    assert (inventory_id(tricky, address) == inventory_id(other, address)) == (tricky == other)


@given(addresses)
def test_an_address_has_one_spelling(address: str) -> None:
    domain, rest = address.split(":", 1)
    long = f"{domain:0>8}:{rest}".upper()
    assert canonical_pci_address(long) == canonical_pci_address(address) == address
    assert re.fullmatch(PCI_ADDRESS, address)


@pytest.mark.parametrize("text", ["", "65:00.0", "0000:65:20.0", "0000:65:00.8", "gpu0", "0000:65:00.0/"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is no PCI address: one looks like"):
        canonical_pci_address(text)
