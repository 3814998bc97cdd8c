"""Conditions over time: a restart changes none of them, a loss changes them once, and an operand that crashes again and
again does not make them flap. Nothing polls: a node is decided on when a Pod changes and when a decision asked for it.
"""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.api.examples import NOON
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.bootstrap.decide import Decision, decide
from gpu_control_plane.bootstrap.operands import OURS, Operand
from gpu_control_plane.bootstrap.snapshot import NO_TIMERS, Settings
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import is_true
from unit.bootstrap.builders import COMPLETE, JUST_NOW, condition, node, observed, pod, state, without

PATIENCE = Settings()


class NodeTimeline:
    """A node from noon on. `changes` are the changes of a status: second, condition, status and reason."""

    def __init__(self, operand: Operand = Operand.AGENT, **status: object) -> None:
        self.operand = operand
        self.status = status
        self.conditions: tuple[Condition, ...] = (COMPLETE,)
        self.timers = NO_TIMERS
        self.changes: list[tuple[float, str, str, str]] = []
        self.decisions = 0
        self.others = True
        """Whether the operand runs on other nodes."""
        self.pods: tuple[Pod, ...] = ()
        self.second = 0.0
        self.wake: float | None = None

    def restart_controller(self) -> None:
        """Timers are lost; conditions are not."""
        self.timers = NO_TIMERS
        self.look()

    def is_ready(self, ready: bool | None) -> None:
        """From now on the Pod is ready, is not, or there is none."""
        since = NOON + timedelta(seconds=self.second)
        self.pods = () if ready is None else (pod(self.operand, ready=ready, since=since),)
        self.look()

    def until(self, second: float) -> None:
        """Time passes, and the node is looked at when a decision asked for it."""
        while self.wake is not None and self.wake <= second:
            self.second, self.wake = self.wake, None
            self.look()
        self.second = second

    def look(self) -> None:
        self.decisions += 1
        decision = self._decide()
        after = (COMPLETE, *decision.conditions)
        held = {one.type: one.status for one in self.conditions}
        self.changes += [
            (self.second, one.type, one.status, one.reason)
            for one in after
            if one.type in held and held[one.type] != one.status
        ]
        self.conditions, self.timers = after, decision.timers
        self.wake = self.second + decision.again_in.total_seconds() if decision.again_in is not None else None

    def _decide(self) -> Decision:
        others = frozenset({self.operand} & {*OURS.values()}) if self.others else frozenset()
        return decide(
            observed(
                state=state(**{**self.status, "conditions": self.conditions}),
                pods=self.pods,
                expected=others,
                timers=self.timers,
                now=NOON + timedelta(seconds=self.second),
            ),
            PATIENCE,
        )

    @property
    def readiness_changes(self) -> list[tuple[float, str, str]]:
        kind = NodeCondition.READY_FOR_POOLING
        return [(second, status, reason) for second, name, status, reason in self.changes if name == kind]


def timeline_of(
    *moments: tuple[float, bool | None], until: float = 1000, timeline: NodeTimeline | None = None
) -> NodeTimeline:
    timeline = timeline or NodeTimeline()
    for second, ready in moments:
        timeline.until(second)
        timeline.is_ready(ready)
    timeline.until(until)
    return timeline


@pytest.mark.parametrize(
    "moments",
    [
        ((0, True), (100, False), (159, True)),
        ((0, True), (100, None), (105, False), (150, True)),
        ((0, True), (100, False), (110, None), (112, False), (168, True)),
        ((0, True), *((second, second % 100 == 0) for second in range(50, 1000, 50))),
    ],
    ids=["container restarts", "pod is replaced", "killed, then replaced", "again and again"],
)
def test_a_restart_changes_no_condition(moments: Sequence[tuple[float, bool | None]]) -> None:
    assert timeline_of(*moments).changes == []


@pytest.mark.parametrize("gone", [False, None], ids=["never ready again", "pod gone"])
def test_a_loss_is_written_once_after_a_minute_without_any_other_change(gone: bool | None) -> None:
    timeline = timeline_of((0, True), (100, gone))
    assert sorted({second for second, *_ in timeline.changes}) == [160]
    assert {(kind, status) for _, kind, status, _ in timeline.changes} == {
        (NodeCondition.READY_FOR_POOLING, "False"),
        (NodeCondition.DEGRADED, "True"),
        (NodeCondition.MONITORING_MISSING, "True"),
    }
    assert timeline.decisions == 3


def test_a_loss_is_withdrawn_when_the_pod_has_been_ready_for_half_a_minute() -> None:
    timeline = timeline_of((0, True), (100, False), (300, True))
    assert timeline.readiness_changes == [(160, "False", Reason.AGENT_NOT_READY), (330, "True", Reason.READY)]


def test_an_operand_that_crashes_again_and_again_stays_lost() -> None:
    """Ready for ten seconds, away for five minutes, over and over: one loss, not one for each round."""
    rounds = [(start + offset, ready) for start in range(300, 3300, 300) for offset, ready in ((0, True), (10, False))]
    timeline = timeline_of((0, True), (100, False), *rounds, until=4000)
    assert timeline.readiness_changes == [(160, "False", Reason.AGENT_NOT_READY)]


@pytest.mark.parametrize("gone", [False, None], ids=["never ready again", "pod gone"])
@pytest.mark.parametrize("restart", [105, 130, 159])
def test_a_restart_of_the_controller_delays_a_loss_and_never_hides_it(gone: bool | None, restart: float) -> None:
    timeline = timeline_of((0, True), (100, gone), until=restart)
    timeline.restart_controller()
    timeline.until(1000)
    (change,) = timeline.readiness_changes
    assert change[1:] == ("False", Reason.AGENT_NOT_READY)
    # The time of a Pod is in the Pod. When one that is gone went is recorded nowhere.
    assert change[0] == (160 if gone is False else restart + 60)


def test_a_restart_of_the_controller_withdraws_no_loss() -> None:
    timeline = timeline_of((0, True), (100, None), until=500)
    timeline.restart_controller()
    timeline.until(1000)
    assert [status for _, status, _ in timeline.readiness_changes] == ["False"]


@pytest.mark.parametrize("ready", [None, False], ids=["no pod yet", "pod not ready"])
def test_a_controller_that_restarts_all_the_time_never_makes_an_unproven_node_ready(ready: bool | None) -> None:
    """The wait for a Pod that is not there begins anew with each start. A node that was ready stays so meanwhile; one
    that never was does not become ready."""
    timeline = NodeTimeline()
    timeline.is_ready(ready)
    for second in range(50, 1000, 50):
        timeline.until(second)
        timeline.restart_controller()
        assert not is_true(timeline.conditions, NodeCondition.READY_FOR_POOLING)
    timeline.until(2000)
    timeline.is_ready(True)
    timeline.until(3000)
    assert is_true(timeline.conditions, NodeCondition.READY_FOR_POOLING)


def test_an_agent_that_was_a_pod_is_expected_although_every_other_is_gone_too() -> None:
    """The DaemonSet was deleted, or selects no node any more: that is a loss, not a configuration without agents."""
    timeline = timeline_of((0, True), until=100)
    timeline.others = False
    timeline.is_ready(None)
    timeline.until(300)
    timeline.restart_controller()
    timeline.until(1000)
    assert timeline.readiness_changes == [(160, "False", Reason.AGENT_NOT_READY)]
    timeline.is_ready(True)
    timeline.until(2000)
    assert [status for _, status, _ in timeline.readiness_changes] == ["False", "True"]


def test_an_exporter_that_is_replaced_leaves_no_gap() -> None:
    timeline = NodeTimeline(Operand.EXPORTER, monitoring=None)
    assert timeline_of((0, True), (100, None), (110, False), (150, True), timeline=timeline).changes == []
    timeline.is_ready(False)
    timeline.until(2000)
    assert [change[1:] for change in timeline.changes] == [
        (NodeCondition.MONITORING_MISSING, "True", Reason.MONITORING_NOT_READY)
    ]


def test_a_duplicate_that_is_replaced_stays_one() -> None:
    """NVIDIA's exporter is restarted: that there are two sources does not end and begin again."""
    timeline = NodeTimeline(Operand.NVIDIA_EXPORTER)
    timeline_of((0, True), (100, None), (110, False), (130, True), until=1000, timeline=timeline)
    assert timeline.changes == []
    timeline.is_ready(None)
    timeline.until(2000)
    assert [change[:3] for change in timeline.changes] == [(1060, NodeCondition.DEGRADED, "False")]


def test_an_operand_that_was_lost_and_then_removed_for_good_is_no_longer_named() -> None:
    """NVIDIA's exporter crashes, then its ClusterPolicy is deleted: the message must not send people to its Pod."""
    timeline = NodeTimeline(Operand.NVIDIA_EXPORTER, monitoring=None)
    timeline_of((0, True), (100, False), (300, None), until=1000, timeline=timeline)
    (held,) = (one for one in timeline.conditions if one.type == NodeCondition.MONITORING_MISSING)
    assert held.reason == Reason.MONITORING_NOT_FOUND


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 59), st.integers(31, 200)), max_size=12))
def test_an_absence_of_less_than_a_minute_never_changes_a_condition(absences: list[tuple[int, int]]) -> None:
    second, moments = 0.0, [(0.0, True)]
    for away, back in absences:
        moments += [(second + back, False), (second + back + away, True)]
        second += back + away
    assert timeline_of(*moments, until=second + 500).changes == []


class CheckedTimeline(NodeTimeline):
    """Checks that the node becomes ready, for the first time or again, only while its agent works."""

    def look(self) -> None:
        before = is_true(self.conditions, NodeCondition.READY_FOR_POOLING)
        super().look()
        if is_true(self.conditions, NodeCondition.READY_FOR_POOLING) and not before:
            assert [one.ready for one in self.pods] == [True]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.sampled_from((True, False, None, "restart"))), max_size=15))
def test_whatever_happens_a_node_becomes_ready_with_a_working_agent_only(
    moments: list[tuple[int, bool | str | None]],
) -> None:
    timeline = CheckedTimeline()
    timeline.is_ready(None)
    for seconds, happens in moments:
        timeline.until(timeline.second + seconds)
        if isinstance(happens, str):
            timeline.restart_controller()
        else:
            timeline.is_ready(happens)
    timeline.is_ready(None)
    timeline.until(timeline.second + PATIENCE.loss_after.total_seconds())
    assert not is_true(timeline.conditions, NodeCondition.READY_FOR_POOLING)
    timeline.is_ready(True)
    timeline.until(timeline.second + PATIENCE.loss_after.total_seconds())
    assert is_true(timeline.conditions, NodeCondition.READY_FOR_POOLING)


def test_the_earliest_of_several_deadlines_is_kept() -> None:
    """The labels differ since now, the agent has been away for ten seconds: that is due first."""
    held = (COMPLETE, condition(NodeCondition.GFD_READY, True, Reason.FEATURE_LABELS_FOUND))
    behind = node(without(gpu_count="3"))
    agent = pod(Operand.AGENT, ready=False, since=JUST_NOW)
    both = decide(observed(state=state(conditions=held), node=behind, pods=(agent,)))
    assert both.again_in == PATIENCE.loss_after - timedelta(seconds=10)
    labels_only = decide(observed(state=state(conditions=held), node=behind))
    assert labels_only.again_in == PATIENCE.loss_after
    assert decide(observed()).again_in is None
