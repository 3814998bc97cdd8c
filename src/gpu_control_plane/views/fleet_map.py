"""The fleet as a map: each card a cell that says what the card does, card beside card by node, node beside node by
pool. Of 40,000 cards a browser gets one byte each."""

import hashlib
import re
from collections import defaultdict
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
    state = card.status.state
    if state is DeviceState.FAULTED:
        return Cell.FAULTED
    if card.ignored:
        return Cell.IGNORED
    if state is DeviceState.DRAINING:
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
    def counts(self) -> Mapping[Cell, int]:
        return {cell: count for cell in Cell if (count := self.cells.count(_ZERO + cell))}


def fleet_map(cards: Iterable[GPUDevice]) -> FleetMap:
    """The map of these cards."""
    by_node: dict[str, list[GPUDevice]] = defaultdict(list)
    for card in cards:
        by_node[card.spec.node_name].append(card)
    grouped: dict[str | None, list[MapNode]] = defaultdict(list)
    for name in sorted(by_node, key=_natural):
        held = sorted(by_node[name], key=_address)
        grouped[_pool_of_most(held)].append(MapNode(name, tuple(held)))
    groups = []
    cells = bytearray()
    names: list[str] = []
    for pool in sorted(grouped, key=lambda pool: (pool is None, pool or "")):
        names.append(f"\n{pool or ''}")
        of_group = bytearray()
        for node in grouped[pool]:
            of_group += bytes([_ZERO + cell_of(card) for card in node.cards])
            names += [card.metadata.name for card in node.cards]
        counts = {cell: count for cell in Cell if (count := of_group.count(_ZERO + cell))}
        groups.append(MapGroup(pool, tuple(grouped[pool]), counts))
        cells += of_group
    layout = hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]
    return FleetMap(groups=tuple(groups), cells=bytes(cells), layout=layout)


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


def _pool_of_most(cards: list[GPUDevice]) -> str | None:
    pools = [card.status.pool_ref.name for card in cards if card.status.pool_ref is not None]
    if len(set(pools)) <= 1:
        return pools[0] if pools else None
    return min(set(pools), key=lambda pool: (-pools.count(pool), pool))


def _address(card: GPUDevice) -> str:
    return card.spec.pci_address


@lru_cache(20_000)
def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """`node-9` before `node-10`."""
    return tuple((int(part) if part.isdecimal() else -1, part) for part in _NUMBERS.split(name))
