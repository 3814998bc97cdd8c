"""Events about a node: one for each change of a condition, and few for a new node."""

from typing import cast

import pytest
from msgspec.structs import replace

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.examples import node_state
from gpu_control_plane.api.names import EventReason, NodeCondition, Reason
from gpu_control_plane.bootstrap.events import record_changes
from gpu_control_plane.kube import Condition, EventRecorder
from gpu_control_plane.kube.conditions import UNKNOWN
from unit.bootstrap.builders import condition

WELL = (
    condition(NodeCondition.DRIVER_MISSING, False, Reason.DRIVER_FOUND),
    condition(NodeCondition.TOOLKIT_MISSING, False, Reason.TOOLKIT_FOUND),
    condition(NodeCondition.MONITORING_MISSING, False, Reason.MONITORING_FOUND),
    condition(NodeCondition.GFD_READY, True, Reason.FEATURE_LABELS_FOUND),
    condition(NodeCondition.DEGRADED, False, Reason.UNDISTURBED),
    condition(NodeCondition.READY_FOR_POOLING, True, Reason.READY),
)
NO_EXPORTER = condition(NodeCondition.MONITORING_MISSING, True, Reason.MONITORING_NOT_FOUND)
DUPLICATES = condition(NodeCondition.DEGRADED, True, Reason.DUPLICATE_SOURCE)
UNLABELLED = condition(NodeCondition.GFD_READY, False, Reason.FEATURE_LABELS_MISSING)
DRIVERLESS = condition(NodeCondition.DRIVER_MISSING, True, Reason.DRIVER_NOT_FOUND)
UNREADY = condition(NodeCondition.READY_FOR_POOLING, False, Reason.DRIVER_NOT_READY)
TAKEN_OUT = condition(NodeCondition.READY_FOR_POOLING, False, Reason.NOT_MANAGED)
NORMAL, WARNING = "Normal", "Warning"


class FakeRecorder:
    """Takes the place of the recorder and keeps what would be written."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []

    def normal(self, _about: object, reason: str, _note: str) -> None:
        self.written.append((NORMAL, str(reason)))

    def warning(self, _about: object, reason: str, _note: str) -> None:
        self.written.append((WARNING, str(reason)))


def node(*others: Condition, well: tuple[Condition, ...] = WELL) -> GPUNodeState:
    """A node on which nothing is wrong, but for these conditions."""
    conditions = {one.type: one for one in (*well, *others)}
    made = node_state("worker-3")
    return replace(made, status=replace(made.status, conditions=tuple(conditions.values())))


def events_of(old: GPUNodeState, new: GPUNodeState) -> list[tuple[str, str]]:
    recorder = FakeRecorder()
    record_changes(cast("EventRecorder", recorder), old, new)
    return recorder.written


@pytest.mark.parametrize(
    ("others", "events"),
    [
        ((), [(NORMAL, EventReason.READY_FOR_POOLING)]),
        ((UNLABELLED,), [(NORMAL, EventReason.READY_FOR_POOLING)]),
        ((NO_EXPORTER,), [(WARNING, Reason.MONITORING_NOT_FOUND), (NORMAL, EventReason.READY_FOR_POOLING)]),
        ((DUPLICATES,), [(WARNING, Reason.DUPLICATE_SOURCE), (NORMAL, EventReason.READY_FOR_POOLING)]),
        ((DRIVERLESS, UNREADY), [(WARNING, EventReason.NOT_READY_FOR_POOLING)]),
    ],
    ids=["nothing wrong", "no labels, which are optional", "no exporter", "two sources", "no driver"],
)
def test_a_new_node_has_events_about_its_readiness_and_what_else_is_wrong(
    others: tuple[Condition, ...], events: list[tuple[str, str]]
) -> None:
    assert events_of(node(well=()), node(*others)) == events


def test_a_node_that_is_taken_out_has_one_event_and_one_that_is_back_those_of_a_new_one() -> None:
    unknown = (replace(one, status=UNKNOWN, reason=Reason.NOT_MANAGED) for one in WELL)
    out = node(*unknown, TAKEN_OUT, replace(DUPLICATES, status="False", reason=Reason.NOT_MANAGED))
    assert events_of(node(), out) == [(WARNING, EventReason.NOT_READY_FOR_POOLING)]
    assert events_of(out, out) == []
    assert events_of(out, node()) == [(NORMAL, EventReason.READY_FOR_POOLING)]
    assert events_of(out, node(DRIVERLESS, UNREADY, NO_EXPORTER)) == [(WARNING, Reason.MONITORING_NOT_FOUND)]
    disturbed = node(DUPLICATES, UNREADY)
    assert events_of(disturbed, out) == [(NORMAL, Reason.NOT_MANAGED)]


def test_each_change_has_one_event_and_what_stays_has_none() -> None:
    assert events_of(node(NO_EXPORTER), node(NO_EXPORTER, DUPLICATES, UNLABELLED)) == [
        (WARNING, Reason.FEATURE_LABELS_MISSING),
        (WARNING, Reason.DUPLICATE_SOURCE),
    ]
    assert events_of(node(DUPLICATES), node()) == [(NORMAL, Reason.UNDISTURBED)]
    assert events_of(node(), node()) == []
