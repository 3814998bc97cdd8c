"""Choices of several things are as good as they claim to be."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.agent.kubelet.subsets import SubsetScores, best_subset, good_subset


@st.composite
def worths(draw: st.DrawFn) -> SubsetScores:
    count = draw(st.integers(1, 7))
    amounts = st.integers(-5, 20)
    pairs = [[0] * count for _ in range(count)]
    for one, other in itertools.combinations(range(count), 2):
        pairs[one][other] = pairs[other][one] = draw(amounts)
    return SubsetScores(draw(st.lists(amounts, min_size=count, max_size=count)), pairs)


def total(worth: SubsetScores, chosen: tuple[int, ...]) -> int:
    pairs = sum(worth.pairs[one][other] for one, other in itertools.combinations(chosen, 2))
    return sum(worth.alone[one] for one in chosen) + pairs


@settings(deadline=None)
@given(worth=worths(), count=st.integers(0, 7))
def test_the_best_choice_is_the_first_of_the_best(worth: SubsetScores, count: int) -> None:
    count = min(count, len(worth.alone))
    choices = itertools.combinations(range(len(worth.alone)), count)
    assert best_subset(worth, count) == max(choices, key=lambda chosen: total(worth, chosen))


@settings(deadline=None)
@given(worth=worths(), count=st.integers(1, 7))
def test_a_good_choice_is_as_good_as_growing_from_the_best_beginning(worth: SubsetScores, count: int) -> None:
    things = range(len(worth.alone))
    count = min(count, len(things))

    def grown(seed: int) -> int:
        chosen: tuple[int, ...] = (seed,)
        while len(chosen) < count:
            further = [(*chosen, thing) for thing in things if thing not in chosen]
            chosen = max(further, key=lambda choice: total(worth, choice))
        return total(worth, chosen)

    chosen = good_subset(worth, count)
    assert len(set(chosen)) == count
    assert total(worth, chosen) == max(grown(seed) for seed in things)


def test_nothing_is_chosen_from_anything() -> None:
    worth = SubsetScores((1, 2), ((0, 3), (3, 0)))
    assert best_subset(worth, 0) == good_subset(worth, 0) == ()
