"""The fleet as a map: each card a cell that says what the card does, card beside card by node, node beside node by
pool. Of 40,000 cards a browser gets one byte each."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Final

import msgspec

from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.loads import Load, load_of


class Cell(IntEnum):
    """What a cell shows. The numbers are sent to browsers."""

    COMPUTING = 0
    HELD_IDLE = 1
    HELD = 2
    """A pod has it; whether it computes is not measured."""
    FREE = 3
    WAITING = 4
    """In no pool, and could join one."""
    LEAVING = 5
    FAULTED = 6
    IGNORED = 7

    @property
    def word(self) -> str:
        """For texts and styles."""
        return self.name.lower().replace("_", "")


_OF_LOADS: Final[Mapping[Load, Cell]] = {
    Load.COMPUTING: Cell.COMPUTING,
    Load.HELD_IDLE: Cell.HELD_IDLE,
    Load.HELD: Cell.HELD,
    Load.FREE: Cell.FREE,
}


def cell_of(card: GPUDevice) -> Cell:
    """What is shown of a card: what is wrong with it comes before what it does."""
    if card.status.state is DeviceState.FAULTED:
        return Cell.FAULTED
    if card.ignored:
        return Cell.IGNORED
    if card.status.state is DeviceState.DRAINING:
        return Cell.LEAVING
    return _OF_LOADS.get(load_of(card), Cell.WAITING)


class MapNode(msgspec.Struct, frozen=True):
    """A node and its cards, in the order of their addresses."""

    name: str
    cards: tuple[GPUDevice, ...]


class MapGroup(msgspec.Struct, frozen=True):
    """The nodes most of whose cards are in one pool, or in none."""

    pool: str | None
    nodes: tuple[MapNode, ...]
    counts: Mapping[Cell, int]

    @property
    def cards(self) -> int:
        return sum(self.counts.values())


class FleetMap(msgspec.Struct, frozen=True, kw_only=True):
    groups: tuple[MapGroup, ...]
    cells: bytes
    """A digit for each card, in the order of the groups."""
    layout: str
    """A digest of which card is where: cells of the same layout can be compared."""

    @property
    def version(self) -> str:
        """A digest of everything."""
        return hashlib.sha256(self.layout.encode() + self.cells).hexdigest()[:16]

    @property
    def counts(self) -> Counter[Cell]:
        return sum((Counter(group.counts) for group in self.groups), Counter[Cell]())


def fleet_map(cards: Iterable[GPUDevice]) -> FleetMap:
    """The map of these cards."""
    by_node: dict[str, list[GPUDevice]] = defaultdict(list)
    for card in cards:
        by_node[card.spec.node_name].append(card)
    grouped: dict[str | None, list[MapNode]] = defaultdict(list)
    for name in sorted(by_node, key=_natural):
        held = sorted(by_node[name], key=lambda card: card.spec.pci_address)
        grouped[_pool_of_most(held)].append(MapNode(name, tuple(held)))
    groups = tuple(_group(pool, grouped[pool]) for pool in sorted(grouped, key=lambda pool: (pool is None, pool or "")))
    layout = hashlib.sha256()
    cells = bytearray()
    for group in groups:
        layout.update(f"{group.pool or ''}\n".encode())
        for node in group.nodes:
            for card in node.cards:
                layout.update(card.metadata.name.encode())
                cells.append(_ZERO + cell_of(card))
    return FleetMap(groups=groups, cells=bytes(cells), layout=layout.hexdigest()[:16])


def map_of(fleet: Fleet, pool: str | None = None) -> FleetMap:
    """The map of a fleet, or of one pool of it."""
    cards = fleet.cards.values()
    if pool is None:
        return fleet_map(cards)
    return fleet_map(card for card in cards if card.status.pool_ref is not None and card.status.pool_ref.name == pool)


def changed_cells(old: bytes, new: bytes) -> list[tuple[int, int]]:
    """Where two rows of cells of one layout differ, with the new cell."""
    if old == new:
        return []
    return [(index, code - _ZERO) for index, (before, code) in enumerate(zip(old, new, strict=True)) if before != code]


_ZERO: Final = ord("0")
_NUMBERS: Final = re.compile(r"(\d+)", re.ASCII)


def _group(pool: str | None, nodes: list[MapNode]) -> MapGroup:
    return MapGroup(pool, tuple(nodes), Counter(cell_of(card) for node in nodes for card in node.cards))


def _pool_of_most(cards: list[GPUDevice]) -> str | None:
    pools = Counter(card.status.pool_ref.name for card in cards if card.status.pool_ref is not None)
    return min(pools, key=lambda pool: (-pools[pool], pool)) if pools else None


@lru_cache(20_000)
def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """`node-9` before `node-10`."""
    return tuple((int(part) if part.isdecimal() else -1, part) for part in _NUMBERS.split(name))
