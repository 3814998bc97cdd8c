"""The drawing of a node: which cards hang on which NUMA node, and which are linked by NVLink."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.views.fleet_map import cell_of

_CARD_WIDTH: Final = 84
_CARD_HEIGHT: Final = 70
_GAP: Final = 10
_PADDING: Final = 14
_HEADING: Final = 26
_BUS: Final = 34


class CardBox(msgspec.Struct, frozen=True):
    name: str
    address: str
    number: int
    cell: str
    x: int
    y: int
    width: int = _CARD_WIDTH
    height: int = _CARD_HEIGHT


class NumaBox(msgspec.Struct, frozen=True):
    number: int | None
    x: int
    width: int
    height: int


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    width: int
    height: int
    numa: tuple[NumaBox, ...]
    cards: tuple[CardBox, ...]
    links: tuple[str, ...]
    """Paths of SVG: one for each pair of linked cards, or one for each card to what links them all."""
    bus: tuple[int, int, int] | None
    """Where the bar lies to which all cards are linked: x, y and width. None where links are drawn pair by pair."""


def topology(cards: Sequence[GPUDevice]) -> Topology | None:
    """None for a node without cards."""
    if not cards:
        return None
    by_numa: dict[int | None, list[GPUDevice]] = defaultdict(list)
    for card in sorted(cards, key=lambda card: card.spec.pci_address):
        hardware = card.status.hardware
        by_numa[hardware.numa_node if hardware is not None else None].append(card)
    numa: list[NumaBox] = []
    boxes: list[CardBox] = []
    x = 1
    height = _HEADING + _CARD_HEIGHT + _PADDING
    for number in sorted(by_numa, key=lambda number: (number is None, number or 0)):
        held = by_numa[number]
        width = 2 * _PADDING + len(held) * _CARD_WIDTH + (len(held) - 1) * _GAP
        numa.append(NumaBox(number, x, width, height))
        for index, card in enumerate(held):
            left = x + _PADDING + index * (_CARD_WIDTH + _GAP)
            boxes.append(CardBox(card.name, card.spec.pci_address, len(boxes), cell_of(card).word, left, _HEADING))
        x += width + _PADDING
    total = x - _PADDING + 1
    return _linked(cards, boxes, numa, total, height)


def _linked(cards: Sequence[GPUDevice], boxes: list[CardBox], numa: list[NumaBox], width: int, height: int) -> Topology:
    place = {box.address: box for box in boxes}
    pairs = {
        (min(card.spec.pci_address, peer), max(card.spec.pci_address, peer))
        for card in cards
        if card.status.hardware is not None
        for peer in card.status.hardware.nvlink_peers
        if peer in place
    }
    all_linked = len(boxes) > 2 and len(pairs) == len(boxes) * (len(boxes) - 1) // 2  # noqa: PLR2004
    foot = _HEADING + _CARD_HEIGHT
    if all_linked:
        middles = [box.x + _CARD_WIDTH // 2 for box in boxes]
        links = tuple(f"M{middle},{foot}V{height + _BUS - 14}" for middle in middles)
        bar = (middles[0] - 20, height + _BUS - 14, middles[-1] - middles[0] + 40)
        return Topology(
            width=width, height=height + _BUS + 12, numa=tuple(numa), cards=tuple(boxes), links=links, bus=bar
        )
    paths = []
    deepest = 0
    for first, second in sorted(pairs):
        start, end = (place[address].x + _CARD_WIDTH // 2 for address in (first, second))
        depth = 14 + abs(end - start) // 9
        deepest = max(deepest, depth)
        paths.append(f"M{start},{foot}C{start},{foot + depth * 2} {end},{foot + depth * 2} {end},{foot}")
    return Topology(
        width=width,
        height=max(height, foot + deepest * 2) + 4,
        numa=tuple(numa),
        cards=tuple(boxes),
        links=tuple(paths),
        bus=None,
    )
