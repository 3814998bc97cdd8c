"""The choice among devices is the best there is, and never a surprise."""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.agent.kubelet.preference import Candidate, pack, score, spread, together

type Preference = Callable[[Sequence[Candidate], Iterable[str], int], tuple[str, ...]]


def cards(*islands: Sequence[str], links: int = 1, numa: int | None = None) -> list[Candidate]:
    """Whole cards by name; those of one island are linked with each other."""
    return [
        Candidate(id=name, card=name, numa=numa, links={other: links for other in island if other != name})
        for island in islands
        for name in island
    ]


def units(card: str, count: int, used: int = 0) -> list[Candidate]:
    return [Candidate(id=f"{card}::{number}", card=card, used=used) for number in range(count)]


@st.composite
def machines(draw: st.DrawFn, most: int = 7) -> list[Candidate]:
    """Any machine with one device a card."""
    names = [f"card-{number}" for number in range(draw(st.integers(0, most)))]
    links = {pair: draw(st.sampled_from((0, 0, 1, 2))) for pair in itertools.combinations(names, 2)}
    found = [
        Candidate(
            id=f"GPU-{name}",
            card=name,
            numa=draw(st.sampled_from((None, 0, 1))),
            pci_root=draw(st.sampled_from((None, "a", "b", "c"))),
            links={other: count for (one, other), count in links.items() if one == name},
        )
        for name in names
    ]
    return draw(st.permutations(found))


@st.composite
def shared_machines(draw: st.DrawFn) -> list[Candidate]:
    """Any machine with several devices a card."""
    found = [
        candidate
        for number in range(draw(st.integers(0, 4)))
        for candidate in units(f"card-{number}", draw(st.integers(1, 4)), used=draw(st.integers(0, 2)))
    ]
    return draw(st.permutations(found))


@pytest.mark.parametrize("prefer", [together, spread, pack])
@settings(deadline=None)
@given(data=st.data())
def test_a_choice_holds_what_is_required_and_as_many_as_asked_for(prefer: Preference, data: st.DataObject) -> None:
    available = data.draw(machines() if prefer is together else shared_machines())
    ids = [candidate.id for candidate in available]
    required = data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
    size = data.draw(st.integers(0, len(ids) + 2))
    chosen = prefer(available, required, size)
    assert len(set(chosen)) == len(chosen) == max(len(required), min(size, len(ids)))
    assert set(required) <= set(chosen) <= set(ids)
    assert prefer(data.draw(st.permutations(available)), required, size) == chosen


def joined(some: Iterable[Candidate]) -> int:
    return sum(score(one, other) for one, other in itertools.combinations(some, 2))


@settings(max_examples=60, deadline=None)
@given(available=machines(), size=st.integers(1, 4), data=st.data())
def test_no_other_cards_are_joined_better_or_leave_a_better_rest(
    available: list[Candidate], size: int, data: st.DataObject
) -> None:
    ids = [candidate.id for candidate in available]
    required = set(data.draw(st.lists(st.sampled_from(ids), max_size=size))) if ids else set()

    def merit(chosen: Collection[str]) -> tuple[int, int]:
        inside = [candidate for candidate in available if candidate.id in chosen]
        return joined(inside), joined(candidate for candidate in available if candidate.id not in chosen)

    chosen = together(available, required, size)
    choices = itertools.combinations(ids, min(size, len(ids)))
    assert merit(chosen) == max(merit(some) for some in choices if required <= set(some))


def test_a_pair_does_not_break_up_an_island_of_four() -> None:
    assert together(cards("abcd", "ef"), (), 2) == ("e", "f")


def test_a_single_card_is_taken_where_the_least_is_lost() -> None:
    assert together(cards("abcd", "efg"), (), 1) == ("e",)
    assert together(cards("abcd", "ef", "g"), (), 1) == ("g",)


def test_more_links_win_over_an_unbroken_island() -> None:
    available = [*cards("abcd", links=2), *cards("ef", links=1)]
    assert together(available, (), 2) == ("a", "b")


def test_required_cards_draw_their_neighbours() -> None:
    assert together(cards("abcd", "efgh"), ("g",), 3) == ("g", "e", "f")


def test_among_cards_behind_one_switch_those_of_one_numa_node_are_chosen() -> None:
    names = "abcde"
    available = [Candidate(id=name, card=name, numa=int(name > "a"), links=dict.fromkeys(names, 18)) for name in names]
    assert together(available, (), 2) == ("b", "c")


def test_without_nvlink_the_pci_root_counts_and_then_the_numa_node() -> None:
    def card(name: str, root: str, numa: int) -> Candidate:
        return Candidate(id=name, card=name, pci_root=root, numa=numa)

    assert together([card("a", "1", 0), card("b", "2", 0), card("c", "3", 1), card("d", "3", 1)], (), 2) == ("c", "d")
    assert together([card("a", "1", 0), card("b", "2", 1), card("c", "3", 1)], (), 2) == ("b", "c")


def test_unknown_places_are_not_taken_for_the_same_place() -> None:
    one, other = Candidate(id="a", card="a"), Candidate(id="b", card="b")
    assert score(one, other) == 10


@pytest.mark.parametrize("size", [4, 8, 16])
def test_among_very_many_cards_whole_islands_are_found(size: int) -> None:
    islands = [[f"{island:02}-{number:02}" for number in range(size)] for island in range(64 // size)]
    loose = [f"00-{number:02}-loose" for number in range(8)]
    chosen = together([*cards(*islands), *cards(*((name,) for name in loose))], (), size)
    assert sorted(chosen) in islands


@settings(deadline=None)
@given(available=shared_machines(), size=st.integers(0, 8))
def test_no_card_is_shared_twice_while_another_has_a_replica_left(available: list[Candidate], size: int) -> None:
    owner = {candidate.id: candidate.card for candidate in available}
    taken = Counter(owner[name] for name in spread(available, (), size))
    room = Counter(owner.values())
    for card, other in itertools.permutations(room, 2):
        assert taken[card] <= taken[other] + 1 or taken[other] == room[other]


@settings(deadline=None)
@given(available=shared_machines())
def test_the_least_used_card_is_shared_next(available: list[Candidate]) -> None:
    chosen = spread(available, (), 1)
    assert [c.used for c in available if c.id in chosen] == ([min(c.used for c in available)] if available else [])


def test_a_replica_goes_to_another_card_than_the_required_one() -> None:
    assert spread([*units("a", 2), *units("b", 2, used=5)], ("a::1",), 2) == ("a::1", "b::0")


@settings(max_examples=60, deadline=None)
@given(available=shared_machines(), size=st.integers(0, 6))
def test_no_choice_of_instances_opens_fewer_unused_cards(available: list[Candidate], size: int) -> None:
    size = min(size, len(available))

    def opened(some: Iterable[Candidate]) -> int:
        return len({candidate.card for candidate in some if not candidate.used})

    chosen = pack(available, (), size)
    fewest = min(opened(some) for some in itertools.combinations(available, size))
    assert opened(candidate for candidate in available if candidate.id in chosen) == fewest


def test_instances_are_taken_from_the_fullest_card() -> None:
    assert pack([*units("a", 7), *units("b", 3, used=4), *units("c", 1, used=6)], (), 2) == ("c::0", "b::0")


def test_instances_are_taken_from_the_smallest_unused_card_that_has_room() -> None:
    assert pack([*units("a", 2), *units("b", 7), *units("c", 3)], (), 3) == ("c::0", "c::1", "c::2")


def test_instances_that_fit_on_no_card_are_taken_from_the_largest() -> None:
    assert pack([*units("a", 1), *units("b", 3), *units("c", 4)], (), 6) == (
        "c::0", "c::1", "c::2", "c::3", "b::0", "b::1"
    )  # fmt: skip
