"""What a target comes to on a card, against the vendor's tables."""

import re

import pytest

from gpu_control_plane.agent.mig.solver import solve
from gpu_control_plane.api.allocation import MIG
from gpu_control_plane.api.gpudevice import MIGCapability, MIGProfile
from gpu_control_plane.rules.mig_layout import Geometry, Misconfigured, PlacementTable, instance_counts
from unit.agent.mig.brute_force import every_slot, legal
from unit.agent.mig.cards import A30, CARDS, H200, equal, layout, mixed, slots

PROFILES = [
    pytest.param(card, profile, id=f"{family}-{profile.name}")
    for family, card in CARDS.items()
    for profile in card.profiles
]

MAXIMAL = [
    ("7 x 1g", layout(g1=7), slots(*(f"g1@{start}" for start in range(7)))),
    ("3 x 2g + 1g", layout(g2=3, g1=1), slots("g2@0", "g2@2", "g2@4", "g1@6")),
    ("4g + 3g", layout(g4=1, g3=1), slots("g4@0", "g3@4")),
    ("4g + 2g + 1g", layout(g4=1, g2=1, g1=1), slots("g4@0", "g2@4", "g1@6")),
    ("2g + 2 x 1g + 3g", layout(g2=1, g1=2, g3=1), slots("g2@0", "g1@2", "g1@3", "g3@4")),
    ("4 x 1g with double memory", layout(g1big=4), slots("g1big@0", "g1big@2", "g1big@4", "g1big@6")),
    ("2 x 3g", layout(g3=2), slots("g3@0", "g3@4")),
]


@pytest.mark.parametrize(("card", "profile"), PROFILES)
def test_one_profile_means_as_many_as_the_vendor_documents(card: MIGCapability, profile: MIGProfile) -> None:
    assert instance_counts(PlacementTable(card), equal(profile.name)) == {profile.name: profile.count}


@pytest.mark.parametrize(("target", "geometry"), [pytest.param(*rest, id=name) for name, *rest in MAXIMAL])
def test_every_maximal_layout_of_the_vendor_is_found(target: MIG, geometry: Geometry) -> None:
    table = PlacementTable(H200)

    found = solve(table, instance_counts(table, target), frozenset(), frozenset()).wanted

    assert sorted(slot.profile for slot in found) == sorted(slot.profile for slot in geometry)
    assert legal(H200, found)
    assert not any(legal(H200, found | {slot}) for slot in every_slot(H200) if slot not in found)


@pytest.mark.parametrize("geometry", [pytest.param(geometry, id=name) for name, _, geometry in MAXIMAL])
def test_the_documented_places_of_a_layout_are_among_those_considered(geometry: Geometry) -> None:
    counts: dict[str, int] = {}
    for slot in geometry:
        counts[slot.profile] = counts.get(slot.profile, 0) + 1

    assert geometry in set(PlacementTable(H200).geometries(counts))


def test_a_resource_spelling_means_the_drivers_profile() -> None:
    assert instance_counts(PlacementTable(H200), equal("1g.18gb.me")) == {"1g.18gb+me": 1}


def test_a_driver_that_reports_too_many_is_held_to_the_places_it_reports() -> None:
    card = MIGCapability.of((MIGProfile(name="2g.12gb", count=4, memory_mib=0, slices=2, starts=(0, 2)),), enabled=True)
    assert instance_counts(PlacementTable(card), equal("2g.12gb")) == {"2g.12gb": 2}


@pytest.mark.parametrize(
    ("card", "target", "reason"),
    [
        pytest.param(
            A30,
            equal("1g.18gb"),
            "The card has no profile 1g.18gb. It has: 1g.6gb, 1g.6gb+me, 2g.12gb, 2g.12gb+me, 4g.24gb.",
            id="unknown profile",
        ),
        pytest.param(
            H200,
            layout(g3=3),
            "The layout has 3 instances of 3g.71gb; the card holds at most 2.",
            id="too many",
        ),
        pytest.param(H200, layout(g3=2, g1=1), "The layout needs 9 of 8 memory slices.", id="too many slices"),
        pytest.param(
            A30,
            mixed({"1g.6gb+me": 1, "2g.12gb+me": 1}),
            "Only one instance of a card has the media extensions, not both 1g.6gb+me and 2g.12gb+me.",
            id="two sets of media extensions",
        ),
        pytest.param(
            H200,
            layout(g3=1, g1=4, g1me=1),
            "The layout needs 9 of 8 memory slices.",
            id="slices are counted across profiles",
        ),
        pytest.param(
            H200,
            layout(g1=7, g1me=1),
            "The layout does not fit the places of this card, by memory slice:"
            " 1g.18gb may start at 0, 1, 2, 3, 4, 5, 6 and takes 1; 1g.18gb+me may start at 0, 1, 2, 3, 4, 5, 6 and"
            " takes 1.",
            id="slices enough but no place",
        ),
    ],
)
def test_a_target_that_can_never_fit_says_why(card: MIGCapability, target: MIG, reason: str) -> None:
    with pytest.raises(Misconfigured, match=f"^{re.escape(reason)}$"):
        instance_counts(PlacementTable(card), target)


def test_a_profile_whose_places_the_driver_keeps_to_itself_cannot_be_placed() -> None:
    card = MIGCapability.of((MIGProfile(name="1g.5gb", count=7, memory_mib=0, slices=1),), enabled=True)

    with pytest.raises(Misconfigured, match="does not say where"):
        instance_counts(PlacementTable(card), equal("1g.5gb"))
