"""MIG instances in the kubelet's words."""

import pytest

from gpu_control_plane.agent.mig.units import UnitName, parse_unit_id, resource_names, unit_id, units
from gpu_control_plane.agent.units import card_of, clash, replica_id
from gpu_control_plane.api.allocation import MIG, Allocation, Mode
from gpu_control_plane.api.gpunodestate import Assignment, OfferedResource
from unit.agent.mig.cards import CARDS, equal, layout, slots

CARD = "GPU-8a6b3c1d-0f52-4a7e-9a41-3f0c2f9e7b11"
NAMES = sorted({profile.name for card in CARDS.values() for profile in card.profiles})
BLACKWELL = ["1g.24gb+me.all", "2g.48gb-me", "1g.24gb+gfx", "4g.96gb+gfx"]


def order(target: MIG, *resources: OfferedResource) -> Assignment:
    return Assignment(
        inventory_id="worker-3-0000-18-00-0",
        pool="small",
        resources=resources,
        allocation=Allocation(mode=Mode.MIG, mig=target),
    )


def offered(name: str, profile: str | None = None) -> OfferedResource:
    return OfferedResource(name=f"gpu.deckhouse.io/{name}", units=1, profile=profile)


@pytest.mark.parametrize("profile", [*NAMES, *BLACKWELL])
@pytest.mark.parametrize("start", [0, 15])
def test_every_unit_has_a_name_the_kubelet_takes_and_we_can_read(profile: str, start: int) -> None:
    name = unit_id(CARD, profile, start)

    assert len(name) <= 63
    assert parse_unit_id(name) == UnitName(CARD, profile, start)
    assert card_of(name) == CARD


def test_a_unit_is_named_by_card_profile_and_place() -> None:
    assert unit_id(CARD, "1g.18gb", 0) == f"{CARD}::1g.18gb@0"


def test_a_name_too_long_for_the_kubelet_is_refused() -> None:
    with pytest.raises(ValueError, match="the kubelet takes 63"):
        unit_id(CARD, "1g.18gb" + "+me" * 6, 0)


@pytest.mark.parametrize("other", [CARD, replica_id(CARD, 3), "", f"{CARD}::1g.18gb", f"{CARD}::1g.18gb@x"])
def test_units_of_other_kinds_are_not_taken_for_instances(other: str) -> None:
    assert parse_unit_id(other) is None


def test_a_layout_offers_each_profile_in_its_own_resource() -> None:
    mixed = order(layout(g3=1, g1me=1), offered("p.3g.71gb", "3g.71gb"), offered("p.1g.18gb.me", "1g.18gb.me"))

    assert resource_names(mixed) == {
        "3g.71gb": "gpu.deckhouse.io/p.3g.71gb",
        "1g.18gb+me": "gpu.deckhouse.io/p.1g.18gb.me",
    }


@pytest.mark.parametrize("profile", [None, "1g.18gb"])
def test_a_single_profile_is_offered_in_the_resource_of_the_pool(profile: str | None) -> None:
    assert resource_names(order(equal("1g.18gb"), offered("small", profile))) == {"1g.18gb": "gpu.deckhouse.io/small"}


def test_instances_become_units_that_clash_exactly_where_they_overlap() -> None:
    mixed = order(layout(g3=1, g1=2), offered("p.3g", "3g.71gb"), offered("p.1g", "1g.18gb"))

    small, large, hidden = units(mixed, CARD, slots("g1@3", "g3@4")) + units(mixed, CARD, slots("g1@5", "g2@0"))

    assert (small.resource, small.id) == ("gpu.deckhouse.io/p.1g", f"{CARD}::1g.18gb@3")
    assert not clash(small, large)
    assert clash(large, hidden)
