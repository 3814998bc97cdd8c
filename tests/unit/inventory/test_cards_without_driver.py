"""Cards that the PCI bus shows and the driver never did: a GPUDevice to put a label on, and nothing else."""

import pytest

from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.gpudevice import PCI
from gpu_control_plane.api.gpunodestate import MAX_CARDS
from gpu_control_plane.api.names import EventReason, Label, NodeCondition, Reason
from gpu_control_plane.inventory.plan import WriteDevice, WriteNodeStatus
from gpu_control_plane.kube.conditions import find
from unit.inventory.model import NODE, NodeModel, actions, card

FIRST, SECOND, THIRD = (pci_address(index) for index in range(3))


def on_bus(*indices: int) -> tuple[PCI, ...]:
    return tuple(card(index).pci for index in indices)


@pytest.fixture
def model() -> NodeModel:
    """A node that joins with two cards, of which the driver shows the first only."""
    made = NodeModel()
    made.report(card(0, "GPU-0"), places=on_bus(0, 1))
    made.settle()
    return made


def completeness(model: NodeModel) -> tuple[str, str]:
    assert model.state is not None
    held = find(model.state.status.conditions, NodeCondition.INVENTORY_COMPLETE)
    assert held is not None
    return held.reason, held.message


def test_it_costs_one_write_and_no_event_of_its_own() -> None:
    model = NodeModel()
    model.report(card(0, "GPU-0"), places=on_bus(0, 1))
    planned = list(actions(model.plan()))
    assert [one.spec.pci_address for one in planned if isinstance(one, WriteDevice)] == [FIRST, SECOND]
    assert sum(isinstance(one, WriteNodeStatus) for one in planned) == 1
    for action in planned:
        model.execute(action)
    assert model.plan().settled
    assert model.events == [Reason.CARDS_MISSING]


def test_its_hardware_and_labels_are_unknown(model: NodeModel) -> None:
    device = model.at(SECOND)
    assert device.status.hardware is None
    labels = {key: device.metadata.labels[key] for key in (Label.NODE, Label.VENDOR, Label.PRODUCT, Label.ARCHITECTURE)}
    assert list(labels.values()) == [NODE, "unknown", "unknown", "unknown"]
    assert model.state is not None
    assert [(one.pci_address, one.product) for one in model.state.status.devices] == [
        (FIRST, "NVIDIA H200"),
        (SECOND, None),
    ]


def test_a_person_can_go_on_without_it(model: NodeModel) -> None:
    """The message has the command from the start."""
    reason, message = completeness(model)
    assert reason == Reason.CARDS_MISSING
    assert f"`kubectl label gpudevice {model.at(SECOND).name} {Label.IGNORE}=true`" in message
    model.ignore(SECOND)
    model.settle()
    assert completeness(model) == (
        Reason.INVENTORY_SYNCED,
        f"All 2 cards are known. Out of service and not seen by the driver: {SECOND}.",
    )


def test_it_is_forgotten_when_it_leaves_the_bus(model: NodeModel) -> None:
    model.ignore(SECOND)
    model.report(card(0, "GPU-0"))
    model.settle()
    assert model.addresses == {FIRST}
    assert EventReason.DEVICE_REMOVED in model.events
    assert completeness(model)[0] == Reason.INVENTORY_SYNCED


def test_it_keeps_its_approval_when_the_driver_shows_it(model: NodeModel) -> None:
    model.approve(SECOND)
    model.report(card(0, "GPU-0"), card(1, "GPU-1"))
    model.settle()
    assert model.at(SECOND).status.hardware == card(1, "GPU-1")
    assert model.at(SECOND).metadata.labels[Label.PRODUCT] == "NVIDIA-H200"
    assert model.approval(SECOND) == "training"
    assert model.events == [Reason.CARDS_MISSING, EventReason.DEVICE_DETECTED, Reason.INVENTORY_SYNCED]


def test_a_card_that_moves_to_its_place_brings_its_own_approval(model: NodeModel) -> None:
    """The card without driver was pulled, and the known one put into its slot: the approval was not for that one."""
    model.approve(SECOND, "inference")
    model.report(card(1, "GPU-0"))
    model.settle()
    assert model.addresses == {SECOND}
    assert model.approval(SECOND) is None


def test_it_can_take_the_address_of_a_card_that_moved(model: NodeModel) -> None:
    model.report(card(2, "GPU-0"), places=on_bus(0, 2))
    model.settle()
    assert model.addresses == {FIRST, THIRD}
    assert model.at(FIRST).status.hardware is None


def test_a_driver_that_shows_no_card_at_first_causes_no_storm_of_events() -> None:
    model = NodeModel()
    model.report(places=on_bus(0, 1, 2))
    model.settle()
    assert model.addresses == {FIRST, SECOND, THIRD}
    model.report(*(card(index, f"GPU-{index}") for index in range(3)))
    model.settle()
    assert model.events == [Reason.CARDS_MISSING, Reason.INVENTORY_SYNCED]


def test_there_are_never_more_than_a_node_may_have() -> None:
    model = NodeModel()
    place = card(0).pci
    functions = tuple(
        PCI(vendor=place.vendor, device=place.device, class_=place.class_, address=f"0000:{bus:02x}:{slot:02x}.0")
        for bus in range(1, 9)
        for slot in range(32)
    )
    model.report(card(0, "GPU-0"), places=(place, *functions))
    model.settle()
    assert len(model.devices) == MAX_CARDS
    assert FIRST in model.addresses


def test_an_agent_that_reports_no_addresses_makes_none() -> None:
    model = NodeModel()
    model.report(card(0, "GPU-0"), bus=2)
    model.settle()
    assert model.addresses == {FIRST}
