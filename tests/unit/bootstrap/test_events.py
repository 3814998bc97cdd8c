"""What people are told about a node: each change of a condition once, and of a new node what they have to know."""

from typing import cast

import pytest
from msgspec.structs import replace

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.examples import node_state
from gpu_control_plane.api.names import EventReason, NodeCondition, Reason
from gpu_control_plane.bootstrap.events import tell_changes
from gpu_control_plane.kube import Condition, EventRecorder
from gpu_control_plane.kube.conditions import UNKNOWN
from unit.bootstrap.scene import condition

WELL = (
    condition(NodeCondition.DRIVER_MISSING, False, Reason.DRIVER_FOUND),
    condition(NodeCondition.TOOLKIT_MISSING, False, Reason.TOOLKIT_FOUND),
    condition(NodeCondition.MONITORING_MISSING, False, Reason.MONITORING_FOUND),
    condition(NodeCondition.GFD_READY, True, Reason.FEATURE_LABELS_FOUND),
    condition(NodeCondition.DEGRADED, False, Reason.UNDISTURBED),
    condition(NodeCondition.READY_FOR_POOLING, True, Reason.READY),
)
UNMEASURED = condition(NodeCondition.MONITORING_MISSING, True, Reason.MONITORING_NOT_FOUND)
DISTURBED = condition(NodeCondition.DEGRADED, True, Reason.DUPLICATE_SOURCE)
UNLABELLED = condition(NodeCondition.GFD_READY, False, Reason.FEATURE_LABELS_MISSING)
DRIVERLESS = condition(NodeCondition.DRIVER_MISSING, True, Reason.DRIVER_NOT_FOUND)
UNREADY = condition(NodeCondition.READY_FOR_POOLING, False, Reason.DRIVER_NOT_READY)
TAKEN_OUT = condition(NodeCondition.READY_FOR_POOLING, False, Reason.NOT_MANAGED)
NORMAL, WARNING = "Normal", "Warning"


class Listener:
    """Takes the place of the recorder and remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def normal(self, _about: object, reason: str, _note: str) -> None:
        self.told.append((NORMAL, str(reason)))

    def warning(self, _about: object, reason: str, _note: str) -> None:
        self.told.append((WARNING, str(reason)))


def node(*others: Condition, well: tuple[Condition, ...] = WELL) -> GPUNodeState:
    """A node on which all is well, but for these conditions."""
    conditions = {one.type: one for one in (*well, *others)}
    made = node_state("worker-3")
    return replace(made, status=replace(made.status, conditions=tuple(conditions.values())))


def told(old: GPUNodeState, new: GPUNodeState) -> list[tuple[str, str]]:
    listener = Listener()
    tell_changes(cast("EventRecorder", listener), old, new)
    return listener.told


@pytest.mark.parametrize(
    ("others", "events"),
    [
        ((), [(NORMAL, EventReason.READY_FOR_POOLING)]),
        ((UNLABELLED,), [(NORMAL, EventReason.READY_FOR_POOLING)]),
        ((UNMEASURED,), [(WARNING, Reason.MONITORING_NOT_FOUND), (NORMAL, EventReason.READY_FOR_POOLING)]),
        ((DISTURBED,), [(WARNING, Reason.DUPLICATE_SOURCE), (NORMAL, EventReason.READY_FOR_POOLING)]),
        ((DRIVERLESS, UNREADY), [(WARNING, EventReason.NOT_READY_FOR_POOLING)]),
    ],
    ids=["all is well", "no labels, which nobody asked for", "nobody measures", "two sources", "no driver"],
)
def test_a_new_node_tells_whether_it_is_ready_and_what_else_troubles_it(
    others: tuple[Condition, ...], events: list[tuple[str, str]]
) -> None:
    assert told(node(well=()), node(*others)) == events


def test_a_node_that_is_taken_out_tells_it_once_and_one_that_is_back_what_a_new_one_does() -> None:
    unknown = (replace(one, status=UNKNOWN, reason=Reason.NOT_MANAGED) for one in WELL)
    out = node(*unknown, TAKEN_OUT, replace(DISTURBED, status="False", reason=Reason.NOT_MANAGED))
    assert told(node(), out) == [(WARNING, EventReason.NOT_READY_FOR_POOLING)]
    assert told(out, out) == []
    assert told(out, node()) == [(NORMAL, EventReason.READY_FOR_POOLING)]
    assert told(out, node(DRIVERLESS, UNREADY, UNMEASURED)) == [(WARNING, Reason.MONITORING_NOT_FOUND)]
    disturbed = node(DISTURBED, UNREADY)
    assert told(disturbed, out) == [(NORMAL, Reason.NOT_MANAGED)]


def test_each_change_is_told_once_and_what_stays_is_not() -> None:
    assert told(node(UNMEASURED), node(UNMEASURED, DISTURBED, UNLABELLED)) == [
        (WARNING, Reason.FEATURE_LABELS_MISSING),
        (WARNING, Reason.DUPLICATE_SOURCE),
    ]
    assert told(node(DISTURBED), node()) == [(NORMAL, Reason.UNDISTURBED)]
    assert told(node(), node()) == []
