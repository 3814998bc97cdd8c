"""What is written about a node in each situation, and what never is."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.gpunodestate import AgentFunctions, ObservedReport
from gpu_control_plane.api.names import EventReason, NodeCondition, Reason
from gpu_control_plane.api.nodefeature import NodeFacts
from gpu_control_plane.inventory.plan import DeleteDevice, DropApproval, WriteDevice, WriteHardware
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import find
from unit.inventory.model import NODE, SETTINGS, NodeModel, actions, bare, card

FIRST = pci_address(0)
GRACE = SETTINGS.node_grace_period


@pytest.fixture
def model() -> NodeModel:
    """A node with two approved cards, everything settled."""
    made = NodeModel()
    made.report(card(0, "GPU-0"), card(1, "GPU-1"))
    made.settle()
    for index in range(2):
        made.approve(pci_address(index))
    made.events.clear()
    return made


def test_a_new_card_is_two_writes_and_one_event() -> None:
    model = NodeModel()
    model.report(card())
    (work,) = model.plan().cards
    assert [type(action) for action in work.actions] == [WriteDevice, WriteHardware]
    model.settle()
    assert model.events == [EventReason.DEVICE_DETECTED]
    assert complete(model).reason == Reason.INVENTORY_SYNCED


def test_the_first_cards_of_a_node_are_one_event_and_each_later_one_another() -> None:
    model = NodeModel()
    model.report(*(card(index, f"GPU-{index}") for index in range(8)))
    model.settle()
    assert model.events == [EventReason.DEVICE_DETECTED]
    model.report(*(card(index, f"GPU-{index}") for index in range(10)))
    model.settle()
    assert model.events == [EventReason.DEVICE_DETECTED] * 3


def test_nothing_is_written_for_a_node_without_report_and_cards() -> None:
    assert NodeModel().plan().settled


def test_a_card_without_an_object_is_not_made_for_a_node_that_does_not_exist() -> None:
    model = NodeModel()
    model.report(card())
    model.node_exists = False
    plan = model.plan()
    assert plan.settled
    assert plan.again_in == GRACE
    model.time += GRACE
    model.settle()
    assert model.feature is None


@pytest.mark.parametrize(
    ("reported", "replaced", "uuid"),
    [
        (card(0, "GPU-0"), False, "GPU-0"),
        (card(0, "GPU-0", product="NVIDIA H200 (renamed by a driver)"), False, "GPU-0"),
        (card(0, "GPU-2"), True, "GPU-2"),
        (bare(0), False, "GPU-0"),
        (bare(0, device="2330"), True, None),
    ],
    ids=["same", "renamed", "other UUID", "no driver", "other model without driver"],
)
def test_which_card_counts_as_replaced(model: NodeModel, reported: Hardware, replaced: bool, uuid: str | None) -> None:
    model.report(reported, card(1, "GPU-1"))
    model.settle()
    hardware = model.at(FIRST).status.hardware
    assert hardware is not None
    assert hardware.uuid == uuid
    assert (model.approval(FIRST) is None) == replaced
    assert (EventReason.DEVICE_REPLACED in model.events) == replaced
    assert model.approval(pci_address(1)) == "training"


def test_a_card_without_driver_keeps_what_pools_select_by(model: NodeModel) -> None:
    before = model.at(FIRST)
    model.report(bare(0), card(1, "GPU-1"))
    model.settle()
    assert model.at(FIRST) == before


def test_a_replacement_while_the_driver_was_missing_is_noticed_later(model: NodeModel) -> None:
    model.report(bare(0), bare(1))
    model.settle()
    model.report(card(0, "GPU-0"), card(1, "GPU-9"))
    model.settle()
    assert (model.approval(FIRST), model.approval(pci_address(1))) == ("training", None)


def test_a_card_first_seen_without_driver_keeps_its_approval_when_its_uuid_is_read() -> None:
    model = NodeModel()
    model.report(bare(0))
    model.settle()
    model.approve(FIRST)
    model.report(card(0, "GPU-0"))
    model.settle()
    assert model.approval(FIRST) == "training"
    assert model.events == [EventReason.DEVICE_DETECTED]


def test_the_approval_is_dropped_before_the_new_hardware_is_written_in_one_chain(model: NodeModel) -> None:
    model.report(card(0, "GPU-2", product="NVIDIA H100"), card(1, "GPU-1"))
    (work,) = model.plan().cards
    assert [type(action) for action in work.actions] == [DropApproval, WriteDevice, WriteHardware]
    assert work.observed == model.at(FIRST)


def test_a_replacement_without_approval_is_guarded_too(model: NodeModel) -> None:
    model.execute(DropApproval(model.at(FIRST)))
    model.report(card(0, "GPU-2"), card(1, "GPU-1"))
    (work,) = model.plan().cards
    assert [type(action) for action in work.actions] == [WriteHardware]
    assert work.observed == model.at(FIRST)


def test_a_card_that_left_a_node_that_reports_is_removed(model: NodeModel) -> None:
    model.report(card(0, "GPU-0"))
    model.settle()
    assert model.addresses == {FIRST}
    assert model.events == [EventReason.DEVICE_REMOVED]


def test_no_card_is_removed_while_the_bus_shows_more_than_are_reported(model: NodeModel) -> None:
    model.report(card(0, "GPU-0"), bus=2)
    model.settle()
    assert len(model.devices) == 2
    held = complete(model)
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
        (lambda model: model.report(card(0), card(1), bus=1), "the PCI bus shows 1"),
        (lambda model: model.report(card(0), card(0)), "two cards are said to be at"),
        (lambda model: model.report(*(card(index) for index in range(65))), "a node may have 64"),
    ],
    ids=["more than the bus", "twice", "too many"],
)
def test_a_report_that_makes_no_sense_changes_no_card(
    model: NodeModel, break_it: Callable[[NodeModel], None], why: str
) -> None:
    before = dict(model.devices)
    break_it(model)
    model.settle()
    assert model.devices == before
    assert complete(model).reason == Reason.NODE_FEATURE_INVALID
    assert why in complete(model).message
    assert model.events == [Reason.NODE_FEATURE_INVALID]
    assert model.state is not None
    assert model.feature is not None
    assert model.state.status.observed_report == ObservedReport.of(model.feature.metadata), "it was read, and refused"


def test_a_node_that_does_not_report_keeps_its_cards_for_ever(model: NodeModel) -> None:
    model.feature = None
    assert model.settle().again_in is None
    model.time += 100 * GRACE
    model.settle()
    assert len(model.devices) == 2
    assert complete(model).reason == Reason.NODE_FEATURE_MISSING


def test_an_empty_bus_removes_cards_only_after_the_grace_period(model: NodeModel) -> None:
    model.report()
    assert model.settle().again_in == GRACE
    assert len(model.devices) == 2
    model.time += GRACE
    assert model.settle().again_in is None
    assert model.devices == {}
    assert complete(model).reason == Reason.NO_DEVICES_DISCOVERED
    assert model.feature is not None


def test_a_node_that_comes_back_in_time_has_lost_nothing(model: NodeModel) -> None:
    before = dict(model.devices)
    model.node_exists = False
    model.settle()
    model.time += GRACE - timedelta(seconds=1)
    assert model.settle().again_in == timedelta(seconds=1)
    model.node_exists = True
    model.settle()
    assert model.devices == before
    assert model.events == [Reason.NODE_GONE, Reason.INVENTORY_SYNCED]


def test_the_grace_period_does_not_begin_with_earlier_trouble(model: NodeModel) -> None:
    """InventoryComplete has been False for an hour when the Node goes: that hour does not count."""
    model.report(card(0, "GPU-0"), bus=2)
    model.settle()
    model.time += timedelta(hours=1)
    model.node_exists = False
    assert model.settle().again_in == GRACE
    assert len(model.devices) == 2


def test_each_absence_has_a_grace_period_of_its_own(model: NodeModel) -> None:
    for _ in range(3):
        model.node_exists = False
        assert model.settle().again_in == GRACE
        model.time += GRACE / 2
        model.node_exists = True
        model.settle()
    assert len(model.devices) == 2


def test_of_a_node_that_stays_away_the_object_with_the_clock_is_deleted_last(model: NodeModel) -> None:
    model.node_exists = False
    model.settle()
    model.time += GRACE
    kinds = [type(action).__name__ for action in actions(model.plan())]
    assert kinds == ["DeleteDevice", "DeleteDevice", "DeleteFeature", "DeleteNodeState"]
    assert model.settle().again_in is None
    assert (model.devices, model.state, model.feature) == ({}, None, None)


def test_objects_that_are_being_deleted_are_not_written(model: NodeModel) -> None:
    going = msgspec.structs.replace(model.at(FIRST).metadata, deletion_timestamp=model.time)
    device = msgspec.structs.replace(model.at(FIRST), metadata=going)
    model.devices[device.name] = device
    model.report(card(0, "GPU-2"), card(1, "GPU-1"))
    assert not model.plan().cards
    model.report(card(1, "GPU-1"))
    assert not any(isinstance(action, DeleteDevice) for action in actions(model.plan()))


def test_what_the_agent_does_comes_from_the_report(model: NodeModel) -> None:
    functions = AgentFunctions(labels=True, checks=False)
    model.report(card(0, "GPU-0"), facts=NodeFacts(bus_cards=1, agent=functions))
    model.settle()
    assert model.state is not None
    assert model.state.status.agent == functions


def test_software_comes_from_the_report_and_stays_when_reports_end(model: NodeModel) -> None:
    model.report(card(0, "GPU-0"), card(1, "GPU-1"), facts=NodeFacts(bus_cards=2))
    model.settle()
    assert model.state is not None
    assert model.state.status.driver is None
    model.report(card(0, "GPU-0"), card(1, "GPU-1"))
    model.settle()
    driver = model.state.status.driver
    model.feature = None
    model.settle()
    assert model.state.status.driver == driver is not None


def test_assignments_are_never_written(model: NodeModel) -> None:
    assert all(not hasattr(action, "spec") or isinstance(action, WriteDevice) for action in actions(model.plan()))


def complete(model: NodeModel) -> Condition:
    assert model.state is not None
    held = find(model.state.status.conditions, NodeCondition.INVENTORY_COMPLETE)
    assert held is not None, NODE
    return held
