"""Cards that the PCI bus shows and the driver never did: an object to put a label on, and nothing else."""

import pytest

from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.gpudevice import PCI
from gpu_control_plane.api.gpunodestate import MAX_CARDS
from gpu_control_plane.api.names import EventReason, Label, NodeCondition, Reason
from gpu_control_plane.inventory.plan import WriteDevice, WriteNodeStatus
from gpu_control_plane.kube.conditions import find
from unit.inventory.world import NODE, World, actions, card

FIRST, SECOND, THIRD = (pci_address(index) for index in range(3))


def on_bus(*indices: int) -> tuple[PCI, ...]:
    return tuple(card(index).pci for index in indices)


@pytest.fixture
def world() -> World:
    """A node that joins with two cards, of which the driver shows the first only."""
    made = World()
    made.report(card(0, "GPU-0"), places=on_bus(0, 1))
    made.settle()
    return made


def said(world: World) -> tuple[str, str]:
    assert world.state is not None
    held = find(world.state.status.conditions, NodeCondition.INVENTORY_COMPLETE)
    assert held is not None
    return held.reason, held.message


def test_it_costs_one_write_and_is_told_of_once() -> None:
    world = World()
    world.report(card(0, "GPU-0"), places=on_bus(0, 1))
    planned = list(actions(world.plan()))
    assert [one.spec.pci_address for one in planned if isinstance(one, WriteDevice)] == [FIRST, SECOND]
    assert sum(isinstance(one, WriteNodeStatus) for one in planned) == 1
    for action in planned:
        world.carry_out(action)
    assert world.plan().settled
    assert world.told == [Reason.CARDS_MISSING]


def test_nothing_is_said_about_it_that_nobody_knows(world: World) -> None:
    unseen = world.at(SECOND)
    assert unseen.status.hardware is None
    labels = {key: unseen.metadata.labels[key] for key in (Label.NODE, Label.VENDOR, Label.PRODUCT, Label.ARCHITECTURE)}
    assert list(labels.values()) == [NODE, "unknown", "unknown", "unknown"]
    assert world.state is not None
    assert [(one.pci_address, one.product) for one in world.state.status.devices] == [
        (FIRST, "NVIDIA H200"),
        (SECOND, None),
    ]


def test_a_person_can_go_on_without_it(world: World) -> None:
    """The message has the command, from the first time it is told."""
    reason, message = said(world)
    assert reason == Reason.CARDS_MISSING
    assert f"`kubectl label gpudevice {world.at(SECOND).name} {Label.IGNORE}=true`" in message
    world.ignore(SECOND)
    world.settle()
    assert said(world) == (
        Reason.INVENTORY_SYNCED,
        f"All 2 cards are known. Out of service and not seen by the driver: {SECOND}.",
    )


def test_it_is_forgotten_when_it_leaves_the_bus(world: World) -> None:
    world.ignore(SECOND)
    world.report(card(0, "GPU-0"))
    world.settle()
    assert world.addresses == {FIRST}
    assert EventReason.DEVICE_REMOVED in world.told
    assert said(world)[0] == Reason.INVENTORY_SYNCED


def test_it_is_found_when_the_driver_shows_it_and_keeps_what_was_said_of_it(world: World) -> None:
    world.approve(SECOND)
    world.report(card(0, "GPU-0"), card(1, "GPU-1"))
    world.settle()
    assert world.at(SECOND).status.hardware == card(1, "GPU-1")
    assert world.at(SECOND).metadata.labels[Label.PRODUCT] == "NVIDIA-H200"
    assert world.approval(SECOND) == "training"
    assert world.told == [Reason.CARDS_MISSING, EventReason.DEVICE_DETECTED, Reason.INVENTORY_SYNCED]


def test_a_card_that_moves_to_its_place_brings_its_own_approval(world: World) -> None:
    """The unseen one was pulled, and the known one put into its slot: what was said of the one is not the other's."""
    world.approve(SECOND, "inference")
    world.report(card(1, "GPU-0"))
    world.settle()
    assert world.addresses == {SECOND}
    assert world.approval(SECOND) is None


def test_one_takes_the_place_of_a_card_that_moved(world: World) -> None:
    world.report(card(2, "GPU-0"), places=on_bus(0, 2))
    world.settle()
    assert world.addresses == {FIRST, THIRD}
    assert world.at(FIRST).status.hardware is None


def test_a_driver_that_shows_no_card_at_first_is_no_storm_of_events() -> None:
    world = World()
    world.report(places=on_bus(0, 1, 2))
    world.settle()
    assert world.addresses == {FIRST, SECOND, THIRD}
    world.report(*(card(index, f"GPU-{index}") for index in range(3)))
    world.settle()
    assert world.told == [Reason.CARDS_MISSING, Reason.INVENTORY_SYNCED]


def test_there_are_never_more_than_a_node_may_have() -> None:
    world = World()
    place = card(0).pci
    functions = tuple(
        PCI(vendor=place.vendor, device=place.device, class_=place.class_, address=f"0000:{bus:02x}:{slot:02x}.0")
        for bus in range(1, 9)
        for slot in range(32)
    )
    world.report(card(0, "GPU-0"), places=(place, *functions))
    world.settle()
    assert len(world.devices) == MAX_CARDS
    assert FIRST in world.addresses


def test_an_agent_that_does_not_say_where_cards_are_makes_none() -> None:
    world = World()
    world.report(card(0, "GPU-0"), bus=2)
    world.settle()
    assert world.addresses == {FIRST}
