"""Conditions over time: a restart moves none of them, a loss moves them once, and something that crashes again and
again does not make them flap. Nobody polls: the node is looked at when a pod changes and when a decision asked for it.
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
from gpu_control_plane.bootstrap.snapshot import NOTHING, Remembered, Settings
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import is_true
from unit.bootstrap.scene import COMPLETE, JUST_NOW, condition, node, pod, seen, state, without

PATIENCE = Settings()


class Life:
    """A node from noon on. `changes` are the changes of a status: seconds, condition, status and reason."""

    def __init__(self, operand: Operand = Operand.AGENT, **status: object) -> None:
        self.operand = operand
        self.status = status
        self.conditions: tuple[Condition, ...] = (COMPLETE,)
        self.remembered: Remembered = NOTHING
        self.changes: list[tuple[float, str, str, str]] = []
        self.looks = 0
        self.others = True
        """Whether the program runs on other nodes."""
        self.pods: tuple[Pod, ...] = ()
        self.second = 0.0
        self.wake: float | None = None

    def restart_controller(self) -> None:
        """What was remembered is gone; the conditions are not."""
        self.remembered = NOTHING
        self.look()

    def is_ready(self, ready: bool | None) -> None:
        """From now on the pod is ready, is not, or there is none."""
        since = NOON + timedelta(seconds=self.second)
        self.pods = () if ready is None else (pod(self.operand, ready=ready, since=since),)
        self.look()

    def until(self, second: float) -> None:
        """Time passes; what was asked for is done."""
        while self.wake is not None and self.wake <= second:
            self.second, self.wake = self.wake, None
            self.look()
        self.second = second

    def look(self) -> None:
        self.looks += 1
        decision = self._decide()
        after = (COMPLETE, *decision.conditions)
        held = {one.type: one.status for one in self.conditions}
        self.changes += [
            (self.second, one.type, one.status, one.reason)
            for one in after
            if one.type in held and held[one.type] != one.status
        ]
        self.conditions, self.remembered = after, decision.remember
        self.wake = self.second + decision.again_in.total_seconds() if decision.again_in is not None else None

    def _decide(self) -> Decision:
        others = frozenset({self.operand} & {*OURS.values()}) if self.others else frozenset()
        return decide(
            seen(
                state=state(**{**self.status, "conditions": self.conditions}),
                pods=self.pods,
                expected=others,
                remembered=self.remembered,
                now=NOON + timedelta(seconds=self.second),
            ),
            PATIENCE,
        )

    @property
    def of_readiness(self) -> list[tuple[float, str, str]]:
        kind = NodeCondition.READY_FOR_POOLING
        return [(second, status, reason) for second, name, status, reason in self.changes if name == kind]


def lived(*moments: tuple[float, bool | None], until: float = 1000, life: Life | None = None) -> Life:
    life = life or Life()
    for second, ready in moments:
        life.until(second)
        life.is_ready(ready)
    life.until(until)
    return life


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
def test_a_restart_moves_no_condition(moments: Sequence[tuple[float, bool | None]]) -> None:
    assert lived(*moments).changes == []


@pytest.mark.parametrize("gone", [False, None], ids=["never ready again", "pod gone"])
def test_a_loss_is_told_once_after_a_minute_without_anything_else_happening(gone: bool | None) -> None:
    life = lived((0, True), (100, gone))
    assert sorted({second for second, *_ in life.changes}) == [160]
    assert {(kind, status) for _, kind, status, _ in life.changes} == {
        (NodeCondition.READY_FOR_POOLING, "False"),
        (NodeCondition.DEGRADED, "True"),
        (NodeCondition.MONITORING_MISSING, "True"),
    }
    assert life.looks == 3


def test_a_loss_is_taken_back_after_half_a_minute_of_work() -> None:
    life = lived((0, True), (100, False), (300, True))
    assert life.of_readiness == [(160, "False", Reason.AGENT_NOT_READY), (330, "True", Reason.READY)]


def test_what_crashes_again_and_again_stays_lost() -> None:
    """Ready for ten seconds, away for five minutes, over and over: one loss, not one for each round."""
    rounds = [(start + offset, ready) for start in range(300, 3300, 300) for offset, ready in ((0, True), (10, False))]
    life = lived((0, True), (100, False), *rounds, until=4000)
    assert life.of_readiness == [(160, "False", Reason.AGENT_NOT_READY)]


@pytest.mark.parametrize("gone", [False, None], ids=["never ready again", "pod gone"])
@pytest.mark.parametrize("restart", [105, 130, 159])
def test_a_restart_of_the_controller_delays_a_loss_and_never_hides_it(gone: bool | None, restart: float) -> None:
    life = lived((0, True), (100, gone), until=restart)
    life.restart_controller()
    life.until(1000)
    (change,) = life.of_readiness
    assert change[1:] == ("False", Reason.AGENT_NOT_READY)
    # The time of a pod is in the pod. When one that is gone went is not written anywhere.
    assert change[0] == (160 if gone is False else restart + 60)


def test_a_restart_of_the_controller_takes_no_loss_back() -> None:
    life = lived((0, True), (100, None), until=500)
    life.restart_controller()
    life.until(1000)
    assert [status for _, status, _ in life.of_readiness] == ["False"]


@pytest.mark.parametrize("ready", [None, False], ids=["no pod yet", "pod not ready"])
def test_a_controller_that_restarts_all_the_time_never_makes_an_unproven_node_ready(ready: bool | None) -> None:
    """The patience for a pod that is not there begins anew with each start. That is credit for a node that was ready,
    and none for one that never was."""
    life = Life()
    life.is_ready(ready)
    for second in range(50, 1000, 50):
        life.until(second)
        life.restart_controller()
        assert not is_true(life.conditions, NodeCondition.READY_FOR_POOLING)
    life.until(2000)
    life.is_ready(True)
    life.until(3000)
    assert is_true(life.conditions, NodeCondition.READY_FOR_POOLING)


def test_an_agent_that_was_a_pod_is_missed_although_every_other_is_gone_too() -> None:
    """The DaemonSet was deleted, or selects no node any more: that is told, not taken for a wish."""
    life = lived((0, True), until=100)
    life.others = False
    life.is_ready(None)
    life.until(300)
    life.restart_controller()
    life.until(1000)
    assert life.of_readiness == [(160, "False", Reason.AGENT_NOT_READY)]
    life.is_ready(True)
    life.until(2000)
    assert [status for _, status, _ in life.of_readiness] == ["False", "True"]


def test_an_exporter_that_is_replaced_leaves_no_gap() -> None:
    life = Life(Operand.EXPORTER, monitoring=None)
    assert lived((0, True), (100, None), (110, False), (150, True), life=life).changes == []
    life.is_ready(False)
    life.until(2000)
    assert [change[1:] for change in life.changes] == [
        (NodeCondition.MONITORING_MISSING, "True", Reason.MONITORING_NOT_READY)
    ]


def test_a_duplicate_that_is_replaced_stays_one() -> None:
    """NVIDIA's exporter is restarted: that there are two sources does not end and begin again."""
    life = Life(Operand.NVIDIA_EXPORTER)
    lived((0, True), (100, None), (110, False), (130, True), until=1000, life=life)
    assert life.changes == []
    life.is_ready(None)
    life.until(2000)
    assert [change[:3] for change in life.changes] == [(1060, NodeCondition.DEGRADED, "False")]


def test_a_program_that_was_lost_and_is_taken_away_for_good_is_missed_by_nobody() -> None:
    """NVIDIA's exporter crashes, which is told; then its policy is deleted: nobody is sent to look for its pod."""
    life = Life(Operand.NVIDIA_EXPORTER, monitoring=None)
    lived((0, True), (100, False), (300, None), until=1000, life=life)
    (held,) = (one for one in life.conditions if one.type == NodeCondition.MONITORING_MISSING)
    assert held.reason == Reason.MONITORING_NOT_FOUND


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 59), st.integers(31, 200)), max_size=12))
def test_no_absence_of_less_than_a_minute_is_ever_told(absences: list[tuple[int, int]]) -> None:
    second, moments = 0.0, [(0.0, True)]
    for away, back in absences:
        moments += [(second + back, False), (second + back + away, True)]
        second += back + away
    assert lived(*moments, until=second + 500).changes == []


class Watched(Life):
    """A node that nobody may call ready, for the first time or again, unless its agent works at that moment."""

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
    life = Watched()
    life.is_ready(None)
    for seconds, happens in moments:
        life.until(life.second + seconds)
        if isinstance(happens, str):
            life.restart_controller()
        else:
            life.is_ready(happens)
    life.is_ready(None)
    life.until(life.second + PATIENCE.loss_after.total_seconds())
    assert not is_true(life.conditions, NodeCondition.READY_FOR_POOLING)
    life.is_ready(True)
    life.until(life.second + PATIENCE.loss_after.total_seconds())
    assert is_true(life.conditions, NodeCondition.READY_FOR_POOLING)


def test_the_earliest_of_several_deadlines_is_kept() -> None:
    """Labels are behind since now, the agent is away for ten seconds: that is due first."""
    held = (COMPLETE, condition(NodeCondition.GFD_READY, True, Reason.FEATURE_LABELS_FOUND))
    behind = node(without(gpu_count="3"))
    agent = pod(Operand.AGENT, ready=False, since=JUST_NOW)
    both = decide(seen(state=state(conditions=held), node=behind, pods=(agent,)))
    assert both.again_in == PATIENCE.loss_after - timedelta(seconds=10)
    labels_only = decide(seen(state=state(conditions=held), node=behind))
    assert labels_only.again_in == PATIENCE.loss_after
    assert decide(seen()).again_in is None
