"""The subset of a given size with the highest score, where each item and each pair of items has a score.

Of equally good subsets the first one is taken, so that the same question always gets the same answer.
"""

from collections.abc import Sequence

import msgspec


class SubsetScores(msgspec.Struct, frozen=True):
    """What each item scores alone, and what each pair of items adds; both may be negative."""

    alone: Sequence[int]
    pairs: Sequence[Sequence[int]]
    """Symmetric, with zeros on the diagonal."""

    def once_chosen(self, count: int) -> "SubsetScores":
        """The scores of the other items once the first `count` are chosen, numbered anew."""
        alone = [one + sum(pairs[:count]) for one, pairs in zip(self.alone, self.pairs, strict=True)]
        return SubsetScores(alone[count:], [pairs[count:] for pairs in self.pairs[count:]])


def best_subset(scores: SubsetScores, count: int) -> tuple[int, ...]:
    """The best subset, by comparing all of them."""
    best: tuple[int, tuple[int, ...]] | None = None

    def extend(chosen: tuple[int, ...], total: int, gains: list[int]) -> None:
        """Add items behind the last chosen one; `gains` is what each would add to the score."""
        nonlocal best
        missing = count - len(chosen)
        begin = chosen[-1] + 1 if chosen else 0
        if missing == 1:
            gain = max(gains[begin:])
            if best is None or total + gain > best[0]:
                best = total + gain, (*chosen, gains.index(gain, begin))
            return
        for place in range(begin, len(gains) - missing + 1):
            pairs = scores.pairs[place]
            extend(
                (*chosen, place),
                total + gains[place],
                [gain + pair for gain, pair in zip(gains, pairs, strict=True)],
            )

    if count:
        extend((), 0, list(scores.alone))
    return best[1] if best else ()


def good_subset(scores: SubsetScores, count: int) -> tuple[int, ...]:
    """A good subset: grown from each item in turn by what adds most, the best of the results."""
    if not count:
        return ()
    best = max((_grown(scores, seed, count) for seed in range(len(scores.alone))), key=lambda grown: grown[0])
    return tuple(sorted(best[1]))


def _grown(scores: SubsetScores, seed: int, count: int) -> tuple[int, list[int]]:
    """The subset that grows from `seed`, and its score."""
    chosen: list[int] = []
    total = 0
    gains = list(scores.alone)
    left = list(range(len(gains)))
    following = seed
    while True:
        total += gains[following]
        chosen.append(following)
        left.remove(following)
        if len(chosen) == count:
            return total, chosen
        gains = [gain + pair for gain, pair in zip(gains, scores.pairs[following], strict=True)]
        following = max(left, key=gains.__getitem__)
