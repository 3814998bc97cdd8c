"""Cards that change their place, and nodes that change their name: what follows the card, and what does not."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.names import EventReason, Label, NodeCondition, Reason
from gpu_control_plane.inventory.plan import CarryOver, DeleteDevice, WriteDevice, WriteHardware
from gpu_control_plane.inventory.snapshot import Elsewhere
from gpu_control_plane.kube.conditions import find
from unit.inventory.world import NODE, SETTINGS, World, actions, card

A, B, C, D = (pci_address(index) for index in range(4))
MOVED, REPLACED, REMOVED, DETECTED = (
    EventReason.DEVICE_MOVED,
    EventReason.DEVICE_REPLACED,
    EventReason.DEVICE_REMOVED,
    EventReason.DEVICE_DETECTED,
)
RENAMED = Elsewhere(node="gpu-3", exists=True, ready=True)


@pytest.fixture
def world() -> World:
    """Cards `a` and `b` at the first two places, each approved for a pool of its own."""
    made = World()
    made.report(card(0, "a"), card(1, "b"))
    made.settle()
    made.approve(A, "for-a")
    made.approve(B, "for-b")
    made.told.clear()
    return made


def at(*cards: tuple[int, str]) -> tuple[Hardware, ...]:
    return tuple(card(index, uuid) for index, uuid in cards)


@pytest.mark.parametrize(
    ("reported", "approvals", "told"),
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
    world: World, reported: tuple[Hardware, ...], approvals: dict[str, str | None], told: list[str]
) -> None:
    world.report(*reported)
    world.settle()
    assert {place: world.approval(place) for place in world.addresses} == approvals
    assert sorted(world.told) == sorted(told)


@pytest.mark.parametrize("crash_after", range(12))
def test_a_crash_on_the_way_loses_no_approval(world: World, crash_after: int) -> None:
    """Every card has another place, each that of another: the one at the end has to be carried first."""
    world.report(*at((0, "new"), (1, "a"), (2, "b")))
    for action in list(actions(world.plan()))[:crash_after]:
        world.carry_out(action)
    world.settle()
    assert {place: world.approval(place) for place in world.addresses} == {A: None, B: "for-a", C: "for-b"}


def test_what_was_said_of_a_card_is_there_before_its_hardware_and_the_old_place_goes_last(world: World) -> None:
    world.report(*at((2, "a"), (1, "b")))
    assert [type(action) for action in actions(world.plan())][:4] == [
        WriteDevice,
        CarryOver,
        WriteHardware,
        DeleteDevice,
    ]


def test_a_card_that_is_out_of_service_stays_so_wherever_it_goes(world: World) -> None:
    world.ignore(A)
    world.report(*at((2, "a"), (1, "b")))
    world.settle()
    assert world.at(C).metadata.labels[Label.IGNORE] == "true"
    assert Label.IGNORE not in world.at(B).metadata.labels


def test_a_card_at_a_new_place_is_proof_that_the_old_one_is_empty(world: World) -> None:
    """Even while the driver does not show all that the bus does."""
    world.report(*at((2, "a")), bus=2)
    world.settle()
    assert world.addresses == {B, C}


def test_two_cards_of_one_name_make_no_sense(world: World) -> None:
    world.report(*at((0, "a"), (1, "a")))
    world.settle()
    assert condition(world) == ("False", Reason.NODE_FEATURE_INVALID)
    assert world.addresses == {A, B}


def reinstalled(world: World) -> None:
    """The Node is deleted and registers anew; its agent reports again."""
    world.node_exists, world.feature = False, None
    world.settle()
    world.time += timedelta(minutes=5)
    world.node_exists = True
    world.settle()
    world.report(*at((0, "a"), (1, "b")))


def reinstalled_as_another_machine(world: World) -> None:
    world.node_exists, world.feature = False, None
    world.settle()
    world.node_exists = True
    world.report(*at((0, "c"), (1, "d")))


def relabelled(world: World) -> None:
    """The label that brought the agent is taken off; what it had reported stays."""
    world.labelled = True
    world.settle()
    world.labelled = False


@pytest.mark.parametrize(
    ("change", "approvals", "said"),
    [
        (reinstalled, {A: "for-a", B: "for-b"}, ("True", Reason.INVENTORY_SYNCED)),
        (reinstalled_as_another_machine, {A: None, B: None}, ("True", Reason.INVENTORY_SYNCED)),
        (relabelled, {A: "for-a", B: "for-b"}, ("True", Reason.INVENTORY_SYNCED)),
    ],
)
def test_a_node_that_is_reinstalled_or_relabelled(
    world: World, change: Callable[[World], None], approvals: dict[str, str | None], said: tuple[str, Reason]
) -> None:
    change(world)
    world.settle()
    assert {place: world.approval(place) for place in world.addresses} == approvals
    assert condition(world) == said


def test_the_old_name_of_a_renamed_node_is_forgotten_at_once(world: World) -> None:
    world.node_exists = False
    world.elsewhere = {"a": RENAMED, "b": RENAMED}
    world.settle()
    assert (world.devices, world.state) == ({}, None)
    assert world.told == [EventReason.NODE_FORGOTTEN]


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"a": RENAMED},
        {"a": RENAMED, "b": msgspec.structs.replace(RENAMED, node="gpu-4")},
        {"a": RENAMED, "b": msgspec.structs.replace(RENAMED, exists=False)},
    ],
    ids=["only one card is elsewhere", "in two nodes", "of which one is gone, too"],
)
def test_a_node_whose_cards_are_not_all_in_another_is_waited_for(world: World, elsewhere: dict[str, Elsewhere]) -> None:
    world.node_exists = False
    world.elsewhere = elsewhere
    assert world.settle().again_in == SETTINGS.node_grace_period
    assert len(world.devices) == 2


@pytest.mark.parametrize(
    ("ready", "other_ready", "other_senior", "ours"),
    [
        (True, False, True, True),
        (False, True, False, False),
        (True, True, False, True),
        (True, True, True, False),
        (False, False, True, False),
        (False, False, False, True),
    ],
)
def test_of_two_nodes_with_one_card_the_better_word_counts(
    world: World, ready: bool, other_ready: bool, other_senior: bool, ours: bool
) -> None:
    """A kubelet that answers counts more than one that does not; else whoever had the card first is believed."""
    world.node_ready = ready
    world.elsewhere = {"a": Elsewhere(node="gpu-3", exists=True, ready=other_ready, senior=other_senior)}
    world.settle()
    assert condition(world) == (("True", Reason.INVENTORY_SYNCED) if ours else ("False", Reason.CARDS_ELSEWHERE))
    if not ours:
        assert f"`kubectl delete node {NODE}`" in message(world)
        assert len(world.devices) == 2


def test_a_card_that_left_for_another_node_is_told_where_it_is(world: World) -> None:
    world.elsewhere = {"b": RENAMED}
    world.report(*at((0, "a")))
    (tell,) = (action.tell for action in actions(world.plan()) if isinstance(action, DeleteDevice))
    assert tell is not None
    assert "The node gpu-3 has it now: approve it there." in tell.note


@pytest.mark.parametrize(
    ("labelled", "minutes", "made"),
    [(False, 60, False), (True, None, False), (True, 1, False), (True, 2, True)],
    ids=["no GPU node", "no agent on it", "new agent", "agent that should have reported"],
)
def test_a_node_whose_agent_says_nothing_becomes_visible_after_a_while(
    labelled: bool, minutes: int | None, made: bool
) -> None:
    world = World()
    world.labelled = labelled
    world.agent_since = world.time - timedelta(minutes=minutes) if minutes is not None else None
    plan = world.settle()
    assert (world.state is not None) == made
    assert plan.again_in == (timedelta(minutes=1) if minutes == 1 else None)
    if made:
        assert condition(world) == ("False", Reason.NODE_FEATURE_MISSING)
        assert "kubectl -n d8-gpu-operator get pods -o wide --field-selector spec.nodeName=worker-3" in message(world)
        world.agent_since = None
        assert world.plan().settled, "its pod is replaced"
        world.labelled = False
        world.settle()
        assert world.state is None


def condition(world: World) -> tuple[str, str]:
    assert world.state is not None
    held = find(world.state.status.conditions, NodeCondition.INVENTORY_COMPLETE)
    assert held is not None
    return held.status, held.reason


def message(world: World) -> str:
    assert world.state is not None
    held = find(world.state.status.conditions, NodeCondition.INVENTORY_COMPLETE)
    return held.message if held is not None else ""
