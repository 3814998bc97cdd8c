"""Where instances go: kept, fixed, preferred; and the same answers as trying everything."""

from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu_control_plane.agent.mig.solver import Solution, solve
from gpu_control_plane.api.allocation import MIG
from gpu_control_plane.api.gpudevice import MIGCapability
from gpu_control_plane.rules.mig_layout import Geometry, Misconfigured, PlacementTable, instance_counts
from unit.agent.mig import brute_force
from unit.agent.mig.cards import A30, CARDS, H200, equal, layout, mixed, slots

NOTHING: Geometry = frozenset()


def solved(
    target: MIG, existing: Geometry = NOTHING, in_use: Geometry = NOTHING, card: MIGCapability = H200
) -> Solution:
    table = PlacementTable(card)
    return solve(table, instance_counts(table, target), existing, in_use)


def test_what_matches_is_kept_where_it_is() -> None:
    existing = slots("g1@2", "g3@4")

    assert solved(layout(g3=1, g1=2), existing).now > existing


def test_a_single_small_instance_leaves_the_largest_places_free() -> None:
    assert solved(layout(g1=1)).wanted == slots("g1@6")


def test_the_shape_with_one_place_gets_it() -> None:
    assert solved(layout(g4=1, g3=1)).wanted == slots("g4@0", "g3@4")


def test_what_is_in_use_stays_and_the_rest_is_cut_around_it() -> None:
    found = solved(equal("1g.35gb"), slots("g1@1", "g1@5"), slots("g1@1"))

    assert found.now == slots("g1big@2", "g1big@4", "g1big@6")
    assert found.missing == tuple(slots("g1big@0"))
    assert found.in_the_way == tuple(slots("g1@1"))


def test_a_partial_cut_never_blocks_the_whole_one() -> None:
    """Only 3g at 4 leaves room for both 2g: with 4 taken, it must wait rather than go to 0."""
    found = solved(layout(g3=1, g2=2), slots("g1@4"), slots("g1@4"))

    assert found.now == slots("g2@0", "g2@2")
    assert found.missing == tuple(slots("g3@4"))


def test_something_in_use_beyond_the_target_is_waited_for_though_nothing_is_missing() -> None:
    found = solved(layout(g1=1), slots("g1@0", "g1@1"), slots("g1@0", "g1@1"))

    assert len(found.now) == 1
    assert not found.missing
    assert len(found.in_the_way) == 1


def test_media_extensions_in_use_block_others_without_any_overlap() -> None:
    taken = slots("1g.6gb+me@0", card=A30)

    found = solved(mixed({"2g.12gb+me": 1}), taken, taken, A30)

    assert found.now == NOTHING
    assert found.in_the_way == tuple(taken)


def test_the_place_of_a_pod_that_survived_a_reset_is_cut_again() -> None:
    assert solved(layout(g3=1), NOTHING, slots("g3@4")).wanted == slots("g3@4")


@st.composite
def situations(draw: st.DrawFn) -> tuple[MIGCapability, dict[str, int], Geometry, Geometry]:
    """A card, a target that fits it, legal instances on it, and which of them are in use."""
    card = CARDS[draw(st.sampled_from(["H200", "A30"]))]
    existing = draw_geometry(draw, card)
    in_use = frozenset(slot for slot in sorted(existing) if draw(st.booleans()))
    counts = Counter(slot.profile for slot in draw_geometry(draw, card))
    assume(counts)
    return card, dict(counts), existing, in_use


def draw_geometry(draw: st.DrawFn, card: MIGCapability) -> Geometry:
    placed: Geometry = frozenset()
    for slot in draw(st.permutations(brute_force.every_slot(card)))[: draw(st.integers(0, 12))]:
        if brute_force.legal(card, placed | {slot}):
            placed |= {slot}
    return placed


@settings(deadline=None)
@given(situations())
def test_the_answer_is_the_best_of_all_there_are(
    situation: tuple[MIGCapability, dict[str, int], Geometry, Geometry],
) -> None:
    card, counts, existing, in_use = situation

    order = sorted(brute_force.every_slot(card), key=lambda slot: (-slot.size, slot))

    def rank(wanted: Geometry) -> tuple[int, list[int], tuple[int, int], int, tuple[int, ...]]:
        sizes = sorted({slot.size for slot in brute_force.every_slot(card)}, reverse=True)
        free = [
            sum(
                slot.size == size and slot not in wanted and brute_force.legal(card, wanted | {slot})
                for slot in brute_force.every_slot(card)
            )
            for size in sizes
        ]
        reach = brute_force.most_now(card, wanted, existing, in_use)
        kept = sorted(order.index(slot) for slot in wanted & in_use)
        return len(kept), [-place for place in kept], reach, len(wanted & existing), tuple(free)

    found = solve(PlacementTable(card), counts, existing, in_use)

    assert rank(found.wanted) == max(rank(other) for other in brute_force.geometries(card, counts))
    assert (sum(slot.size for slot in found.now), len(found.now)) == rank(found.wanted)[2]


@settings(deadline=None)
@given(situations())
def test_the_answer_can_exist_beside_what_is_in_use(
    situation: tuple[MIGCapability, dict[str, int], Geometry, Geometry],
) -> None:
    card, counts, existing, in_use = situation

    found = solve(PlacementTable(card), counts, existing, in_use)

    assert Counter(slot.profile for slot in found.wanted) == Counter(counts)
    assert brute_force.legal(card, found.wanted)
    assert brute_force.legal(card, found.now | in_use)
    assert found.now <= found.wanted
    assert set(found.in_the_way) == in_use - found.wanted


@settings(deadline=None)
@given(situations())
def test_nothing_cut_on_the_way_has_to_go_again(
    situation: tuple[MIGCapability, dict[str, int], Geometry, Geometry],
) -> None:
    """Users leave one by one, while what was cut meanwhile finds users of its own."""
    card, counts, existing, in_use = situation
    table = PlacementTable(card)
    found = solve(table, counts, existing, in_use)

    for leaving in found.in_the_way:
        present = found.now | set(found.in_the_way)
        later = solve(table, counts, present, present - {leaving})
        assert later.now >= found.now
        found = later

    assert found.now == found.wanted


@settings(deadline=None)
@given(st.sampled_from(sorted(CARDS)), st.data())
def test_a_target_is_refused_exactly_when_no_geometry_meets_it(family: str, data: st.DataObject) -> None:
    card = CARDS[family]
    names = [profile.name for profile in card.profiles]
    counts = data.draw(st.dictionaries(st.sampled_from(names), st.integers(1, 4), min_size=1, max_size=3))
    assume(sum(counts.values()) <= 6)

    try:
        instance_counts(PlacementTable(card), mixed(counts))
        accepted = True
    except Misconfigured:
        accepted = False

    assert accepted == any(brute_force.geometries(card, counts))
