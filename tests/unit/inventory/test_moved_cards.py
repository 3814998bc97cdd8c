"""Cards that change their address, and nodes that change their name: what follows the card, and what does not."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.names import EventReason, Label, NodeCondition, Reason
from gpu_control_plane.inventory.plan import CarryOver, DeleteDevice, WriteDevice, WriteHardware
from gpu_control_plane.inventory.snapshot import DuplicateUUID
from gpu_control_plane.kube.conditions import find
from unit.inventory.model import NODE, SETTINGS, NodeModel, actions, card

A, B, C, D = (pci_address(index) for index in range(4))
MOVED, REPLACED, REMOVED, DETECTED = (
    EventReason.DEVICE_MOVED,
    EventReason.DEVICE_REPLACED,
    EventReason.DEVICE_REMOVED,
    EventReason.DEVICE_DETECTED,
)
RENAMED = DuplicateUUID(node="gpu-3", exists=True, ready=True)


@pytest.fixture
def model() -> NodeModel:
    """Cards `a` and `b` at the first two places, each approved for a pool of its own."""
    made = NodeModel()
    made.report(card(0, "a"), card(1, "b"))
    made.settle()
    made.approve(A, "for-a")
    made.approve(B, "for-b")
    made.events.clear()
    return made


def at(*cards: tuple[int, str]) -> tuple[Hardware, ...]:
    return tuple(card(index, uuid) for index, uuid in cards)


@pytest.mark.parametrize(
    ("reported", "approvals", "events"),
    [
        (at((0, "a"), (1, "b")), {A: "for-a", B: "for-b"}, []),
        (at((2, "a"), (1, "b")), {C: "for-a", B: "for-b"}, [MOVED]),
        (at((2, "a"), (3, "b")), {C: "for-a", D: "for-b"}, [MOVED, MOVED]),
        (at((1, "a"), (2, "b")), {B: "for-a", C: "for-b"}, [MOVED, MOVED]),
        (at((0, "new"), (1, "a"), (2, "b")), {A: None, B: "for-a", C: "for-b"}, [MOVED, MOVED, REPLACED]),
        (at((1, "a")), {B: "for-a"}, [MOVED]),
        (at((0, "a"), (1, "c")), {A: "for-a", B: None}, [REPLACED]),
        (at((0, "a")), {A: "for-a"}, [REMOVED]),
        (at((0, "b"), (1, "a")), {A: None, B: None}, [REPLACED, REPLACED]),
        (at((0, "c"), (2, "a"), (1, "b")), {A: None, B: "for-b", C: "for-a"}, [MOVED, REPLACED]),
        (at((0, "a"), (1, "b"), (2, "c")), {A: "for-a", B: "for-b", C: None}, [DETECTED]),
    ],
    ids=[
        "nothing",
        "one moved",
        "both moved",
        "all shifted by one",
        "a new card in front shifts all",
        "one moved to the place of another, which is gone",
        "swapped",
        "removed",
        "traded places",
        "moved, another in its place",
        "added",
    ],
)
def test_an_approval_follows_its_card(
    model: NodeModel, reported: tuple[Hardware, ...], approvals: dict[str, str | None], events: list[str]
) -> None:
    model.report(*reported)
    model.settle()
    assert {address: model.approval(address) for address in model.addresses} == approvals
    assert sorted(model.events) == sorted(events)


@pytest.mark.parametrize("crash_after", range(12))
def test_a_crash_on_the_way_loses_no_approval(model: NodeModel, crash_after: int) -> None:
    """Each card moves to the address of another: the last of the line has to be carried over first."""
    model.report(*at((0, "new"), (1, "a"), (2, "b")))
    for action in list(actions(model.plan()))[:crash_after]:
        model.execute(action)
    model.settle()
    assert {address: model.approval(address) for address in model.addresses} == {A: None, B: "for-a", C: "for-b"}


def test_annotations_are_carried_over_before_the_hardware_and_the_old_object_goes_last(model: NodeModel) -> None:
    model.report(*at((2, "a"), (1, "b")))
    assert [type(action) for action in actions(model.plan())][:4] == [
        WriteDevice,
        CarryOver,
        WriteHardware,
        DeleteDevice,
    ]


def test_the_label_ignore_follows_its_card(model: NodeModel) -> None:
    model.ignore(A)
    model.report(*at((2, "a"), (1, "b")))
    model.settle()
    assert model.at(C).metadata.labels[Label.IGNORE] == "true"
    assert Label.IGNORE not in model.at(B).metadata.labels
    assert model.state is not None
    assert {card.pci_address: card.ignored for card in model.state.status.devices} == {B: None, C: True}
    assert model.plan().settled


def test_a_card_at_a_new_address_proves_that_the_old_one_is_empty(model: NodeModel) -> None:
    """Even while the driver does not show all that the bus does."""
    model.report(*at((2, "a")), bus=2)
    model.settle()
    assert model.addresses == {B, C}


def test_two_cards_with_one_uuid_make_no_sense(model: NodeModel) -> None:
    model.report(*at((0, "a"), (1, "a")))
    model.settle()
    assert condition(model) == ("False", Reason.NODE_FEATURE_INVALID)
    assert model.addresses == {A, B}


def reinstalled(model: NodeModel) -> None:
    """The Node is deleted and registers anew; its agent reports again."""
    model.node_exists, model.feature = False, None
    model.settle()
    model.time += timedelta(minutes=5)
    model.node_exists = True
    model.settle()
    model.report(*at((0, "a"), (1, "b")))


def reinstalled_as_another_machine(model: NodeModel) -> None:
    model.node_exists, model.feature = False, None
    model.settle()
    model.node_exists = True
    model.report(*at((0, "c"), (1, "d")))


def relabelled(model: NodeModel) -> None:
    """The label that brought the agent is taken off; the report stays."""
    model.agent_expected = True
    model.settle()
    model.agent_expected = False


@pytest.mark.parametrize(
    ("change", "approvals", "expected"),
    [
        (reinstalled, {A: "for-a", B: "for-b"}, ("True", Reason.INVENTORY_SYNCED)),
        (reinstalled_as_another_machine, {A: None, B: None}, ("True", Reason.INVENTORY_SYNCED)),
        (relabelled, {A: "for-a", B: "for-b"}, ("True", Reason.INVENTORY_SYNCED)),
    ],
)
def test_a_node_that_is_reinstalled_or_relabelled(
    model: NodeModel,
    change: Callable[[NodeModel], None],
    approvals: dict[str, str | None],
    expected: tuple[str, Reason],
) -> None:
    change(model)
    model.settle()
    assert {address: model.approval(address) for address in model.addresses} == approvals
    assert condition(model) == expected


def test_the_old_name_of_a_renamed_node_is_forgotten_at_once(model: NodeModel) -> None:
    model.node_exists = False
    model.duplicates = {"a": RENAMED, "b": RENAMED}
    model.settle()
    assert (model.devices, model.state) == ({}, None)
    assert model.events == [EventReason.NODE_FORGOTTEN]


@pytest.mark.parametrize(
    "duplicates",
    [
        {"a": RENAMED},
        {"a": RENAMED, "b": msgspec.structs.replace(RENAMED, node="gpu-4")},
        {"a": RENAMED, "b": msgspec.structs.replace(RENAMED, exists=False)},
    ],
    ids=["only one card is elsewhere", "in two nodes", "of which one is gone, too"],
)
def test_a_node_whose_cards_are_not_all_in_one_other_has_its_grace_period(
    model: NodeModel, duplicates: dict[str, DuplicateUUID]
) -> None:
    model.node_exists = False
    model.duplicates = duplicates
    assert model.settle().again_in == SETTINGS.node_grace_period
    assert len(model.devices) == 2


@pytest.mark.parametrize(
    ("ready", "other_ready", "other_older", "ours"),
    [
        (True, False, True, True),
        (False, True, False, False),
        (True, True, False, True),
        (True, True, True, False),
        (False, False, True, False),
        (False, False, False, True),
    ],
)
def test_which_of_two_nodes_with_one_card_is_believed(
    model: NodeModel, ready: bool, other_ready: bool, other_older: bool, ours: bool
) -> None:
    """The one whose kubelet answers; if that is the same for both, the one that had the card first."""
    model.node_ready = ready
    model.duplicates = {"a": DuplicateUUID(node="gpu-3", exists=True, ready=other_ready, older=other_older)}
    model.settle()
    assert condition(model) == (("True", Reason.INVENTORY_SYNCED) if ours else ("False", Reason.CARDS_ELSEWHERE))
    if not ours:
        assert f"`kubectl delete node {NODE}`" in message(model)
        assert len(model.devices) == 2


def test_the_event_of_a_card_that_left_names_its_new_node(model: NodeModel) -> None:
    model.duplicates = {"b": RENAMED}
    model.report(*at((0, "a")))
    (event,) = (action.event for action in actions(model.plan()) if isinstance(action, DeleteDevice))
    assert event is not None
    assert "The node gpu-3 has it now: approve it there." in event.note


@pytest.mark.parametrize(
    ("agent_expected", "minutes", "made"),
    [(False, 60, False), (True, None, False), (True, 1, False), (True, 2, True)],
    ids=["no GPU node", "no agent on it", "new agent", "agent that should have reported"],
)
def test_a_node_whose_agent_does_not_report_gets_an_object_after_a_while(
    agent_expected: bool, minutes: int | None, made: bool
) -> None:
    model = NodeModel()
    model.agent_expected = agent_expected
    model.agent_pod_since = model.time - timedelta(minutes=minutes) if minutes is not None else None
    plan = model.settle()
    assert (model.state is not None) == made
    assert plan.again_in == (timedelta(minutes=1) if minutes == 1 else None)
    if made:
        assert condition(model) == ("False", Reason.NODE_FEATURE_MISSING)
        assert "kubectl -n d8-gpu-operator get pods -o wide --field-selector spec.nodeName=worker-3" in message(model)
        model.agent_pod_since = None
        assert model.plan().settled, "its pod is replaced"
        model.agent_expected = False
        model.settle()
        assert model.state is None


def condition(model: NodeModel) -> tuple[str, str]:
    assert model.state is not None
    held = find(model.state.status.conditions, NodeCondition.INVENTORY_COMPLETE)
    assert held is not None
    return held.status, held.reason


def message(model: NodeModel) -> str:
    assert model.state is not None
    held = find(model.state.status.conditions, NodeCondition.INVENTORY_COMPLETE)
    return held.message if held is not None else ""
