"""Which units a step lists, and how a unit moves from one resource to another."""

from gpu_control_plane.agent.step.advertising import (
    NOT_CHECKED,
    UNUSED_CHECK_SECONDS,
    UnusedCheck,
    allocatable_units,
    inherited,
    next_advertising,
    plugin_status,
)
from gpu_control_plane.agent.units import Unit, replica_id
from gpu_control_plane.api.allocation import Mode

CARDS = ("a", "b")


def whole(card: str, resource: str) -> Unit:
    return Unit(resource, card, card)


def replicas(card: str, resource: str, count: int) -> frozenset[Unit]:
    return frozenset(Unit(resource, replica_id(card, number), card, Mode.TIME_SLICE) for number in range(count))


def instances(card: str, resource: str, *slices: tuple[int, int]) -> frozenset[Unit]:
    return frozenset(Unit(resource, f"{card}::{each}", card, Mode.MIG, each) for each in slices)


ONE, TWO = whole("a", "one"), whole("a", "two")


def test_a_new_unit_is_listed_at_once() -> None:
    first = next_advertising({ONE}, {}, set(), allocatable=set(), now=0.0)
    assert first.advertised == {ONE: NOT_CHECKED}
    assert first.look_again is None


def test_a_unit_leaves_after_two_checks_and_joins_the_other_resource_one_step_later() -> None:
    checked = next_advertising({TWO}, {ONE: NOT_CHECKED}, set(), allocatable=set(), now=10.0)
    assert (list(checked.advertised), checked.look_again) == ([ONE], UNUSED_CHECK_SECONDS)
    soon = 10.0 + UNUSED_CHECK_SECONDS / 2
    too_soon = next_advertising({TWO}, checked.advertised, set(), allocatable=set(), now=soon)
    assert too_soon.advertised == checked.advertised
    gone = next_advertising({TWO}, checked.advertised, set(), allocatable=set(), now=10.0 + UNUSED_CHECK_SECONDS)
    assert (gone.advertised, gone.removed, gone.look_again) == ({}, True, 0.0)
    assert list(next_advertising({TWO}, gone.advertised, set(), allocatable=set(), now=11.0).advertised) == [TWO]


def test_checks_begin_only_when_the_kubelet_can_no_longer_allocate_the_unit() -> None:
    status_waiting = next_advertising(set(), {ONE: NOT_CHECKED}, set(), allocatable={ONE}, now=10.0)
    assert status_waiting.advertised == {ONE: NOT_CHECKED}
    assert status_waiting.look_again == UNUSED_CHECK_SECONDS


def test_a_unit_in_use_stays_listed_as_unhealthy() -> None:
    advertised = next_advertising(set(), {ONE: UnusedCheck(1)}, {ONE}, allocatable=set(), now=10.0).advertised
    plugin = plugin_status(advertised, allocatable_units(set(), advertised, CARDS), 7, unpooled=None)
    (resource,) = plugin.resources
    assert (resource.name, resource.units, resource.healthy, resource.inventory_ids) == ("one", 1, 0, ("a",))
    assert plugin.observed_generation == 7


def test_a_unit_in_use_is_listed_even_when_the_last_status_was_lost() -> None:
    assert list(next_advertising({TWO}, {}, {ONE}, allocatable=set(), now=0.0).advertised) == [ONE]


def test_an_order_taken_back_makes_the_unit_healthy_again_at_once() -> None:
    advertised = next_advertising({ONE}, {ONE: UnusedCheck(1, 1.0)}, set(), allocatable=set(), now=5.0).advertised
    assert allocatable_units({ONE}, advertised, CARDS) == {ONE}
    assert advertised[ONE] == NOT_CHECKED


def test_more_replicas_join_while_others_are_in_use() -> None:
    three = replicas("a", "one", 3)
    taken = Unit("one", replica_id("a", 0), "a", Mode.TIME_SLICE)
    two = dict.fromkeys(replicas("a", "one", 2), NOT_CHECKED)
    assert set(next_advertising(three, two, {taken}, allocatable=set(), now=0.0).advertised) == three


def test_instances_beside_one_in_use_may_change() -> None:
    old, new = instances("a", "one", (0, 4), (4, 8)), instances("a", "one", (0, 4), (4, 6))
    taken = instances("a", "one", (0, 4))
    advertised = dict.fromkeys(old, NOT_CHECKED)
    for now in (0.0, 1.0, 2.0):
        advertised = next_advertising(new, advertised, taken, allocatable=set(), now=now).advertised
    assert set(advertised) == new


def test_a_new_agent_moves_only_cards_with_care_that_were_listed_in_other_resources() -> None:
    plugin = plugin_status(dict.fromkeys((ONE, whole("b", "one")), NOT_CHECKED), (), 1, unpooled=None)
    assert list(inherited(plugin, {TWO, *replicas("b", "one", 2)})) == [ONE]


def test_what_is_inherited_counts_as_the_whole_card() -> None:
    plugin = plugin_status(dict.fromkeys(replicas("a", "one", 2), NOT_CHECKED), (), 1, unpooled=None)
    assert inherited(plugin, {TWO}) == {ONE: NOT_CHECKED}


def test_cards_in_no_pool_are_counted_and_not_named() -> None:
    advertised = {ONE: NOT_CHECKED, whole("b", "two"): NOT_CHECKED}
    plugin = plugin_status(advertised, (), 1, unpooled="one")
    assert {each.name: (each.units, each.inventory_ids) for each in plugin.resources} == {
        "one": (1, ()),
        "two": (1, ("b",)),
    }
