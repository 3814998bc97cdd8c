"""Cards that change pools together have one Event, on their node."""

from typing import Any

from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.api.names import EventReason
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.pools.events import record_cards
from unit.pools.model import NodeModel
from unit.pools.test_decide import node_with, pool


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


def test_an_unapproved_card_has_no_approval_that_could_be_ignored() -> None:
    made = node_with()
    assert recorded(made) == []
    (plan,) = made.plan().cards
    assert plan.state is DeviceState.UNASSIGNED
