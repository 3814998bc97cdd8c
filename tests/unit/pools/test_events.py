"""Cards that change pools together have one Event, on their node; what is asked of a card and not done has one, too."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.deviceselector import DeviceSelector
from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.api.names import EventReason, Label
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.pools.events import record_cards
from unit.pools.model import NodeModel
from unit.pools.test_decide import H100, label, node_with, only, pool


class Recorded:
    """An event recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def normal(self, about: Object, reason: str, note: str, **_more: Any) -> None:
        self.events.append((about.resource.kind, reason, note))

    warning = normal


def recorded(made: NodeModel) -> list[tuple[str, str, str]]:
    recorder = Recorded()
    record_cards(recorder, made.plan().cards, made.state)  # type: ignore[arg-type]
    return recorder.events


def test_one_card_has_an_event_of_its_own() -> None:
    ((kind, reason, note),) = recorded(node_with(pool(), approved="a"))
    assert (kind, reason) == ("GPUDevice", EventReason.DEVICE_ASSIGNED)
    assert note == "Assigned to a: approved by annotation"


def test_cards_that_join_together_have_one_event_on_their_node() -> None:
    ((kind, reason, note),) = recorded(node_with(pool(), cards=3, approved="a"))
    assert (kind, reason) == ("GPUNodeState", EventReason.DEVICE_ASSIGNED)
    assert note == "3 cards assigned to a: approved by annotation: 0000:18:00.0, 0000:2a:00.0, 0000:3a:00.0"


def annotated(made: NodeModel, approved: str) -> NodeModel:
    made.settle()
    made.annotate(only(made), assignment=approved)
    return made


def crowded() -> NodeModel:
    """A node of which the pool takes one card, and has it; the other is approved, too."""
    made = node_with(pool(device_selector=DeviceSelector(max_devices_per_node=1)), cards=2, approved="a")
    made.settle()
    return made


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            lambda: annotated(node_with(pool("training")), "trainnig"),
            "approved for trainnig, but there is no such pool",
        ),
        (lambda: annotated(node_with(pool("training")), "trainnig"), "assignment=training --overwrite`"),
        (lambda: annotated(node_with(pool(device_selector=H100)), "a"), "the approved pool does not select the card"),
        (crowded, "the pool takes no more cards from this node (maxDevicesPerNode): raise"),
        (lambda: label(node_with(), **{Label.IGNORE: "yes"}), "gpu.deckhouse.io/ignore=yes has no effect"),
    ],
    ids=["mistyped", "mistyped, with a hint", "not selected", "limit of the node", "label"],
)
def test_what_is_asked_of_a_card_and_not_done_is_told_once_and_stays_on_the_card(
    made: Callable[[], NodeModel], words: str
) -> None:
    node = made()
    for name in list(node.devices):  # as if it had been asked for just now
        device = node.devices[name]
        node.devices[name] = replace(device, status=replace(device.status, message=None))
    told = [note for kind, _, note in recorded(node) if kind == "GPUDevice" and words in note]
    assert len(told) == 1
    node.settle()
    (message,) = [device.status.message for device in node.devices.values() if device.status.message]
    assert words in message
    assert [note for _, _, note in recorded(node) if words in note] == []


def test_another_mistake_is_told_anew_and_a_corrected_one_leaves_the_card() -> None:
    node = annotated(node_with(pool()), "b")
    node.settle()
    node.annotate(only(node), assignment="c")
    assert [note for _, _, note in recorded(node) if "approved for c, but there is no such pool" in note]
    node.annotate(only(node), assignment="a")
    node.settle()
    assert node.devices[only(node)].status.message is None


def test_a_label_that_says_false_is_understood() -> None:
    assert recorded(label(node_with(), **{Label.IGNORE: "false"})) == []


def test_an_unapproved_card_has_no_approval_that_could_be_ignored() -> None:
    made = node_with()
    assert recorded(made) == []
    (plan,) = made.plan().cards
    assert plan.state is DeviceState.UNASSIGNED
