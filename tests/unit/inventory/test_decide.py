"""What is done about a node in each situation, and what never is."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.names import EventReason, NodeCondition, Reason
from gpu_control_plane.api.nodefeature import NodeFacts
from gpu_control_plane.inventory.plan import DeleteDevice, DropApproval, WriteDevice, WriteHardware
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import find
from unit.inventory.world import NODE, SETTINGS, World, actions, bare, card

FIRST = pci_address(0)
GRACE = SETTINGS.node_grace_period


@pytest.fixture
def world() -> World:
    """A node with two approved cards, everything settled."""
    made = World()
    made.report(card(0, "GPU-0"), card(1, "GPU-1"))
    made.settle()
    for index in range(2):
        made.approve(pci_address(index))
    made.told.clear()
    return made


def test_a_new_card_is_two_writes_and_a_word() -> None:
    world = World()
    world.report(card())
    (work,) = world.plan().cards
    assert [type(action) for action in work.actions] == [WriteDevice, WriteHardware]
    world.settle()
    assert world.told == [EventReason.DEVICE_DETECTED]
    assert complete(world).reason == Reason.INVENTORY_SYNCED


def test_the_cards_that_a_node_comes_with_are_one_word_and_each_later_one_another() -> None:
    world = World()
    world.report(*(card(index, f"GPU-{index}") for index in range(8)))
    world.settle()
    assert world.told == [EventReason.DEVICE_DETECTED]
    world.report(*(card(index, f"GPU-{index}") for index in range(10)))
    world.settle()
    assert world.told == [EventReason.DEVICE_DETECTED] * 3


def test_a_node_without_report_or_cards_is_none_of_our_business() -> None:
    assert World().plan().settled


def test_a_card_without_an_object_is_not_made_for_a_node_that_does_not_exist() -> None:
    world = World()
    world.report(card())
    world.node_exists = False
    plan = world.plan()
    assert plan.settled
    assert plan.again_in == GRACE
    world.time += GRACE
    world.settle()
    assert world.feature is None


@pytest.mark.parametrize(
    ("seen", "another", "uuid"),
    [
        (card(0, "GPU-0"), False, "GPU-0"),
        (card(0, "GPU-0", product="NVIDIA H200 (renamed by a driver)"), False, "GPU-0"),
        (card(0, "GPU-2"), True, "GPU-2"),
        (bare(0), False, "GPU-0"),
        (bare(0, device="2330"), True, None),
    ],
    ids=["same", "renamed", "other UUID", "no driver", "other model without driver"],
)
def test_which_card_is_another_card(world: World, seen: Hardware, another: bool, uuid: str | None) -> None:
    world.report(seen, card(1, "GPU-1"))
    world.settle()
    hardware = world.at(FIRST).status.hardware
    assert hardware is not None
    assert hardware.uuid == uuid
    assert (world.approval(FIRST) is None) == another
    assert (EventReason.DEVICE_REPLACED in world.told) == another
    assert world.approval(pci_address(1)) == "training"


def test_a_card_without_driver_keeps_what_pools_select_by(world: World) -> None:
    before = world.at(FIRST)
    world.report(bare(0), card(1, "GPU-1"))
    world.settle()
    assert world.at(FIRST) == before


def test_an_exchange_while_the_driver_was_missing_is_found_out(world: World) -> None:
    world.report(bare(0), bare(1))
    world.settle()
    world.report(card(0, "GPU-0"), card(1, "GPU-9"))
    world.settle()
    assert (world.approval(FIRST), world.approval(pci_address(1))) == ("training", None)


def test_the_uuid_of_a_card_first_seen_without_driver_is_learnt_without_harm() -> None:
    world = World()
    world.report(bare(0))
    world.settle()
    world.approve(FIRST)
    world.report(card(0, "GPU-0"))
    world.settle()
    assert world.approval(FIRST) == "training"
    assert world.told == [EventReason.DEVICE_DETECTED]


def test_the_approval_goes_before_the_hardware_comes_and_nothing_slips_in_between(world: World) -> None:
    world.report(card(0, "GPU-2", product="NVIDIA H100"), card(1, "GPU-1"))
    (work,) = world.plan().cards
    assert [type(action) for action in work.actions] == [DropApproval, WriteDevice, WriteHardware]
    assert work.observed == world.at(FIRST)


def test_an_unapproved_exchange_is_guarded_too(world: World) -> None:
    world.carry_out(DropApproval(world.at(FIRST)))
    world.report(card(0, "GPU-2"), card(1, "GPU-1"))
    (work,) = world.plan().cards
    assert [type(action) for action in work.actions] == [WriteHardware]
    assert work.observed == world.at(FIRST)


def test_a_card_that_left_a_node_that_reports_is_removed(world: World) -> None:
    world.report(card(0, "GPU-0"))
    world.settle()
    assert world.addresses == {FIRST}
    assert world.told == [EventReason.DEVICE_REMOVED]


def test_fewer_cards_than_the_bus_shows_prove_nothing(world: World) -> None:
    world.report(card(0, "GPU-0"), bus=2)
    world.settle()
    assert len(world.devices) == 2
    held = complete(world)
    assert (held.status, held.reason) == ("False", Reason.CARDS_MISSING)
    assert held.message == (
        f"The PCI bus shows 2 cards, the node reports 1. Missing: {pci_address(1)} (NVIDIA H200). "
        f"`lspci -nnk -s {pci_address(1)}` and `dmesg | grep -i nvrm` on {NODE} say what the driver makes of it; a "
        "restart of the node often helps. To go on without it: "
        "`kubectl label gpudevice worker-3-0000-2a-00-0 gpu.deckhouse.io/ignore=true`."
    )


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (lambda world: world.report(card(0), card(1), bus=1), "the PCI bus shows 1"),
        (lambda world: world.report(card(0), card(0)), "two cards are said to be at"),
        (lambda world: world.report(*(card(index) for index in range(65))), "a node may have 64"),
    ],
    ids=["more than the bus", "twice", "too many"],
)
def test_a_report_that_makes_no_sense_changes_no_card(
    world: World, break_it: Callable[[World], None], why: str
) -> None:
    before = dict(world.devices)
    break_it(world)
    world.settle()
    assert world.devices == before
    assert complete(world).reason == Reason.NODE_FEATURE_INVALID
    assert why in complete(world).message
    assert world.told == [Reason.NODE_FEATURE_INVALID]


def test_a_silent_node_keeps_its_cards_for_ever(world: World) -> None:
    world.feature = None
    assert world.settle().again_in is None
    world.time += 100 * GRACE
    world.settle()
    assert len(world.devices) == 2
    assert complete(world).reason == Reason.NODE_FEATURE_MISSING


def test_an_empty_bus_is_doubted_for_the_grace_period(world: World) -> None:
    world.report()
    assert world.settle().again_in == GRACE
    assert len(world.devices) == 2
    world.time += GRACE
    assert world.settle().again_in is None
    assert world.devices == {}
    assert complete(world).reason == Reason.NO_DEVICES_DISCOVERED
    assert world.feature is not None


def test_a_node_that_comes_back_in_time_has_lost_nothing(world: World) -> None:
    before = dict(world.devices)
    world.node_exists = False
    world.settle()
    world.time += GRACE - timedelta(seconds=1)
    assert world.settle().again_in == timedelta(seconds=1)
    world.node_exists = True
    world.settle()
    assert world.devices == before
    assert world.told == [Reason.NODE_GONE, Reason.INVENTORY_SYNCED]


def test_the_grace_period_does_not_begin_with_earlier_trouble(world: World) -> None:
    """InventoryComplete has been False for an hour when the Node goes: that hour does not count."""
    world.report(card(0, "GPU-0"), bus=2)
    world.settle()
    world.time += timedelta(hours=1)
    world.node_exists = False
    assert world.settle().again_in == GRACE
    assert len(world.devices) == 2


def test_each_absence_has_a_grace_period_of_its_own(world: World) -> None:
    for _ in range(3):
        world.node_exists = False
        assert world.settle().again_in == GRACE
        world.time += GRACE / 2
        world.node_exists = True
        world.settle()
    assert len(world.devices) == 2


def test_a_node_that_stays_away_is_forgotten_with_its_clock_last(world: World) -> None:
    world.node_exists = False
    world.settle()
    world.time += GRACE
    kinds = [type(action).__name__ for action in actions(world.plan())]
    assert kinds == ["DeleteDevice", "DeleteDevice", "DeleteFeature", "DeleteNodeState"]
    assert world.settle().again_in is None
    assert (world.devices, world.state, world.feature) == ({}, None, None)


def test_objects_that_are_being_deleted_are_left_to_it(world: World) -> None:
    going = msgspec.structs.replace(world.at(FIRST).metadata, deletion_timestamp=world.time)
    device = msgspec.structs.replace(world.at(FIRST), metadata=going)
    world.devices[device.name] = device
    world.report(card(0, "GPU-2"), card(1, "GPU-1"))
    assert not world.plan().cards
    world.report(card(1, "GPU-1"))
    assert not any(isinstance(action, DeleteDevice) for action in actions(world.plan()))


def test_software_comes_from_the_report_and_stays_when_the_node_falls_silent(world: World) -> None:
    world.report(card(0, "GPU-0"), card(1, "GPU-1"), facts=NodeFacts(bus_cards=2))
    world.settle()
    assert world.state is not None
    assert world.state.status.driver is None
    world.report(card(0, "GPU-0"), card(1, "GPU-1"))
    world.settle()
    driver = world.state.status.driver
    world.feature = None
    world.settle()
    assert world.state.status.driver == driver is not None


def test_orders_are_never_touched(world: World) -> None:
    assert all(not hasattr(action, "spec") or isinstance(action, WriteDevice) for action in actions(world.plan()))


def complete(world: World) -> Condition:
    assert world.state is not None
    held = find(world.state.status.conditions, NodeCondition.INVENTORY_COMPLETE)
    assert held is not None, NODE
    return held
