"""The fleet map: what each cell shows, and how little is sent when something changes."""

from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.fleet_map import Cell, cell_of, changed_cells, fleet_map, map_of
from unit.views.builders import card


def test_what_is_wrong_with_a_card_comes_before_what_it_does() -> None:
    assert cell_of(card(state=DeviceState.FAULTED, pods=("a/b",), utilisation=90)) is Cell.FAULTED
    assert cell_of(card(ignored=True, pods=("a/b",), utilisation=90)) is Cell.IGNORED
    assert cell_of(card(state=DeviceState.DRAINING, pods=("a/b",), utilisation=90)) is Cell.LEAVING


def test_a_held_card_computes_or_idles_or_is_not_measured() -> None:
    assert cell_of(card(pods=("a/b",), utilisation=90)) is Cell.COMPUTING
    assert cell_of(card(pods=("a/b",), utilisation=0)) is Cell.HELD_IDLE
    assert cell_of(card(pods=("a/b",))) is Cell.HELD
    assert cell_of(card()) is Cell.FREE
    assert cell_of(card(state=DeviceState.UNASSIGNED, pool=None, pending="AwaitingApproval")) is Cell.WAITING


def test_nodes_are_grouped_by_the_pool_of_most_of_their_cards_and_ordered_as_people_count() -> None:
    cards = [
        card("h200-10", 0x18),
        card("h200-9", 0x18),
        card("h200-9", 0x19, pool="other"),
        card("h200-9", 0x20),
        card("l40s-1", 0x18, pool=None, state=DeviceState.UNASSIGNED),
    ]
    found = fleet_map(cards)
    assert [(group.pool, [node.name for node in group.nodes]) for group in found.groups] == [
        ("training", ["h200-9", "h200-10"]),
        (None, ["l40s-1"]),
    ]
    assert found.cells == b"33334"
    assert found.counts == {Cell.FREE: 4, Cell.WAITING: 1}


def test_only_the_cells_that_changed_are_sent() -> None:
    before = fleet_map([card(slot=slot) for slot in range(8)])
    after = fleet_map([card(slot=slot, pods=("a/b",) if slot == 5 else (), utilisation=90) for slot in range(8)])
    assert before.layout == after.layout
    assert before.version != after.version
    assert changed_cells(before.cells, after.cells) == [(5, Cell.COMPUTING)]
    assert changed_cells(after.cells, after.cells) == []


def test_another_card_makes_another_layout() -> None:
    assert fleet_map([card(slot=1)]).layout != fleet_map([card(slot=1), card(slot=2)]).layout


def test_the_map_of_a_pool_has_its_cards_alone() -> None:
    cards = {found.name: found for found in (card(slot=1), card(slot=2, pool="other"))}
    assert len(map_of(Fleet(cards=cards), "other").cells) == 1
