"""Which of the available devices a container should get. Pure and deterministic.

Whole cards are chosen for fast links between them, and so that the cards left for other pods are well linked, too.
Replicas are spread over cards, so that sharing is fair. MIG instances are packed, so that whole cards stay free.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpu_control_plane.agent.kubelet.subsets import SubsetScores, best_subset, good_subset

NVLINK: Final = 100
"""The score of each NVLink between two cards."""
SAME_ROOT: Final = 50
SAME_NUMA: Final = 20
APART: Final = 10

_EXACT: Final = 13_000
"""Up to this number of subsets all are compared, which covers any choice among 16 cards; beyond that, a good one is
taken."""
_DIGIT: Final = 1 << 32


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A device that could be chosen, and the card it is or belongs to."""

    id: str
    card: str
    """PCI address."""
    numa: int | None = None
    pci_root: str | None = None
    links: Mapping[str, int] = {}
    """How many NVLinks lead to which other card, by PCI address."""
    used: int = 0
    """How many units of the card are in use."""


def together(available: Sequence[Candidate], required: Iterable[str], size: int) -> tuple[str, ...]:
    """Whole cards: those with the best links; among equals those that leave the best linked cards over, so that a pair
    does not break up an island of four while another pair is free; then those nearest to each other, in order."""
    must, may = _split(available, required)
    more = max(0, min(size - len(must), len(may)))
    scores = _scores([*must, *may]).once_chosen(len(must))
    find = best_subset if math.comb(len(may), more) <= _EXACT else good_subset
    return tuple(candidate.id for candidate in (*must, *(may[place] for place in find(scores, more))))


def spread(available: Sequence[Candidate], required: Iterable[str], size: int) -> tuple[str, ...]:
    """Replicas: each from another card while there is one, from those least used first."""
    chosen, left = _split(available, required)
    taken = Counter(candidate.card for candidate in chosen)
    replicas = _by_card(left)
    while replicas and len(chosen) < size:
        card = min(replicas, key=lambda card: (taken[card], replicas[card][0].used, card))
        chosen.append(replicas[card].pop(0))
        taken[card] += 1
        if not replicas[card]:
            del replicas[card]
    return tuple(candidate.id for candidate in chosen)


def pack(available: Sequence[Candidate], required: Iterable[str], size: int) -> tuple[str, ...]:
    """MIG instances: from cards in use, the fullest first; then from as few unused cards as possible."""
    chosen, left = _split(available, required)
    begun = {candidate.card for candidate in chosen} | {candidate.card for candidate in left if candidate.used}
    instances = _by_card(left)
    while instances and len(chosen) < size:
        missing = size - len(chosen)
        card = _next_card(instances, begun, missing)
        chosen += instances.pop(card)[:missing]
    return tuple(candidate.id for candidate in chosen)


def score(one: Candidate, other: Candidate) -> int:
    """How well two cards are linked; it is enough that one of them reports the links."""
    links = max(one.links.get(other.card, 0), other.links.get(one.card, 0))
    return NVLINK * links or _nearness(one, other)


def _nearness(one: Candidate, other: Candidate) -> int:
    if one.pci_root is not None and one.pci_root == other.pci_root:
        return SAME_ROOT
    if one.numa is not None and one.numa == other.numa:
        return SAME_NUMA
    return APART


def _scores(cards: Sequence[Candidate]) -> SubsetScores:
    """The score of choosing cards together, as one number with three digits. From the left: how well the chosen cards
    are linked; how well the rest stays linked, which is what each chosen card takes away from it; how near to each
    other the chosen cards are, NVLink aside."""
    scores = [[0 if one is other else score(one, other) for other in cards] for one in cards]
    pairs = [
        [
            0 if one is other else joined * _DIGIT**2 + _nearness(one, other)
            for joined, other in zip(row, cards, strict=True)
        ]
        for row, one in zip(scores, cards, strict=True)
    ]
    return SubsetScores([-sum(row) * _DIGIT for row in scores], pairs)


def _next_card(instances: Mapping[str, Sequence[Candidate]], begun: Iterable[str], missing: int) -> str:
    """A card in use if there is one; else the smallest that has room for all, else the largest."""
    in_use = sorted(set(instances).intersection(begun))
    if in_use:
        return max(in_use, key=lambda card: instances[card][0].used)
    unused = sorted(instances)
    roomy = [card for card in unused if len(instances[card]) >= missing]
    if roomy:
        return min(roomy, key=lambda card: len(instances[card]))
    return max(unused, key=lambda card: len(instances[card]))


def _split(available: Sequence[Candidate], required: Iterable[str]) -> tuple[list[Candidate], list[Candidate]]:
    """The required devices and the others, in a fixed order."""
    wanted = set(required)
    ordered = sorted(available, key=lambda candidate: (candidate.card, candidate.id))
    must = [candidate for candidate in ordered if candidate.id in wanted]
    return must, [candidate for candidate in ordered if candidate.id not in wanted]


def _by_card(candidates: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    cards: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        cards[candidate.card].append(candidate)
    return cards
