"""The few of many that are worth most together, when each has a worth and so has each pair.

Of equally good choices the first one wins, so that the answer never depends on chance.
"""

from collections.abc import Sequence

import msgspec


class Worth(msgspec.Struct, frozen=True):
    """What each of several things is worth alone, and what each pair of them adds; both may be negative."""

    alone: Sequence[int]
    pairs: Sequence[Sequence[int]]
    """Symmetric, zero from each thing to itself."""

    def once_chosen(self, count: int) -> "Worth":
        """The worth of the others once the first `count` things are chosen, numbered anew."""
        alone = [one + sum(pairs[:count]) for one, pairs in zip(self.alone, self.pairs, strict=True)]
        return Worth(alone[count:], [pairs[count:] for pairs in self.pairs[count:]])


def best_subset(worth: Worth, count: int) -> tuple[int, ...]:
    """The best choice, found by comparing all."""
    best: tuple[int, tuple[int, ...]] | None = None

    def extend(chosen: tuple[int, ...], total: int, gains: list[int]) -> None:
        """Add things behind the last chosen one; `gains` is what each would add."""
        nonlocal best
        missing = count - len(chosen)
        begin = chosen[-1] + 1 if chosen else 0
        if missing == 1:
            gain = max(gains[begin:])
            if best is None or total + gain > best[0]:
                best = total + gain, (*chosen, gains.index(gain, begin))
            return
        for place in range(begin, len(gains) - missing + 1):
            pairs = worth.pairs[place]
            extend(
                (*chosen, place),
                total + gains[place],
                [gain + pair for gain, pair in zip(gains, pairs, strict=True)],
            )

    if count:
        extend((), 0, list(worth.alone))
    return best[1] if best else ()


def good_subset(worth: Worth, count: int) -> tuple[int, ...]:
    """A good choice: begun with each thing in turn and grown by what gains most, the best of the results."""
    if not count:
        return ()
    best = max((_grown(worth, seed, count) for seed in range(len(worth.alone))), key=lambda grown: grown[0])
    return tuple(sorted(best[1]))


def _grown(worth: Worth, seed: int, count: int) -> tuple[int, list[int]]:
    """What a choice that begins with `seed` is worth, and the choice."""
    chosen: list[int] = []
    total = 0
    gains = list(worth.alone)
    left = list(range(len(gains)))
    following = seed
    while True:
        total += gains[following]
        chosen.append(following)
        left.remove(following)
        if len(chosen) == count:
            return total, chosen
        gains = [gain + pair for gain, pair in zip(gains, worth.pairs[following], strict=True)]
        following = max(left, key=gains.__getitem__)
