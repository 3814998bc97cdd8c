"""A node that is taken out by its label says so and raises no alert, and it comes back by proof alone."""

from datetime import timedelta

import msgspec
import pytest

from gpu_control_plane.api.examples import NOON
from gpu_control_plane.api.names import Label, NodeCondition, Reason
from gpu_control_plane.bootstrap.conditions import GOOD_STATUS
from gpu_control_plane.bootstrap.decide import Decision, decide
from gpu_control_plane.bootstrap.operands import Operand
from gpu_control_plane.bootstrap.snapshot import Settings, Snapshot, Timers
from gpu_control_plane.kube.conditions import UNKNOWN
from gpu_control_plane.rules.managed_nodes import ManagedNodes
from unit.bootstrap.builders import (
    AGENT,
    COMPLETE,
    LABELS,
    LONG_AGO,
    checked,
    condition,
    node,
    observed,
    pod,
    state,
)

READY = NodeCondition.READY_FOR_POOLING
DEGRADED = NodeCondition.DEGRADED
OUT = node({**LABELS, Label.ENABLED: "false"})
AWAY = Timers(missing_since={Operand.AGENT: LONG_AGO})
INCOMPLETE = condition(NodeCondition.INVENTORY_COMPLETE, False, Reason.CARDS_MISSING)
LOST = (COMPLETE, condition(DEGRADED, True, Reason.AGENT_NOT_READY), condition(READY, False, Reason.AGENT_NOT_READY))
OTHER_KEY = ManagedNodes(label="example.com/gpu")
PATIENCE = Settings()
ONE_BY_ONE = ManagedNodes(label="example.com/gpu", by_default=False)


@pytest.mark.parametrize(
    "snapshot",
    [
        observed(node=OUT),
        observed(node=OUT, pods=(), timers=AWAY),
        observed(node=OUT, pods=(), state=state(conditions=LOST)),
        observed(node=OUT, pods=(), state=state(driver=None, toolkit=None, monitoring=None)),
        observed(node=OUT, state=state(validation=checked("cuda"))),
        observed(node=OUT, state=state(conditions=(INCOMPLETE,))),
        observed(node=OUT, pods=(AGENT, pod(Operand.NVIDIA_PLUGIN))),
        observed(node=OUT, report_observed=False),
    ],
    ids=[
        "its agent still there",
        "its agent gone",
        "its agent known to be lost",
        "no driver",
        "a check had failed",
        "cards missing",
        "served by another plugin",
        "its last report not taken in",
    ],
)
def test_a_node_that_was_taken_out_says_so_whatever_is_wrong_with_it(snapshot: Snapshot) -> None:
    decision = decide(snapshot)
    assert {held.reason for held in decision.conditions} == {Reason.NOT_MANAGED}
    statuses = {held.type: held.status for held in decision.conditions}
    assert statuses == dict.fromkeys(GOOD_STATUS, UNKNOWN) | {DEGRADED: "False", READY: "False"}
    assert decision.again_in is None


@pytest.mark.parametrize(
    ("rule", "labels", "managed"),
    [
        (ManagedNodes(), {}, True),
        (ManagedNodes(), {Label.ENABLED: "true"}, True),
        (ManagedNodes(), {Label.ENABLED: ""}, True),
        (ManagedNodes(), {Label.ENABLED: "false"}, False),
        (OTHER_KEY, {Label.ENABLED: "false"}, True),
        (OTHER_KEY, {"example.com/gpu": "false"}, False),
        (ONE_BY_ONE, {}, False),
        (ONE_BY_ONE, {Label.ENABLED: "true"}, False),
        (ONE_BY_ONE, {"example.com/gpu": "yes"}, False),
        (ONE_BY_ONE, {"example.com/gpu": "true"}, True),
    ],
)
def test_the_rule_is_that_of_the_chart(rule: ManagedNodes, labels: dict[str, str], managed: bool) -> None:
    decision = decide(observed(node=node({**LABELS, **labels})), Settings(managed=rule))
    assert (_written(decision, READY)[0] != Reason.NOT_MANAGED) is managed


def test_the_message_names_the_label_that_brings_the_node_back() -> None:
    taken_out = decide(observed(node=node({"example.com/gpu": "false"})), Settings(managed=OTHER_KEY))
    assert "`kubectl label node worker-3 example.com/gpu-`" in _written(taken_out, READY)[1]
    not_yet_in = decide(observed(), Settings(managed=ONE_BY_ONE))
    assert "`kubectl label node worker-3 example.com/gpu=true --overwrite`" in _written(not_yet_in, READY)[1]


def test_a_node_that_is_gone_is_not_one_that_was_taken_out() -> None:
    assert _written(decide(observed(node=None), Settings(managed=ONE_BY_ONE)), READY)[0] == Reason.READY


@pytest.mark.parametrize("expected", [frozenset({Operand.AGENT}), frozenset()], ids=["one of many", "the only node"])
def test_a_node_that_is_managed_again_waits_for_its_agent(expected: frozenset[Operand]) -> None:
    """Its last report is old, and the controller may have been restarted since it was taken out."""
    back = _after(decide(observed(node=OUT)), pods=(), expected=expected)
    waiting = decide(back)
    assert {held.reason for held in waiting.conditions} == {Reason.NOT_MANAGED}
    assert _written(waiting, READY)[1] == "The node is managed again. No pod gets a card before its agent is back."
    assert waiting.again_in == PATIENCE.loss_after
    starting = msgspec.structs.replace(back, pods=(pod(Operand.AGENT, ready=False, since=back.now),))
    assert _written(decide(starting), READY)[0] == Reason.CHECKS_PENDING
    assert _written(decide(starting), DEGRADED)[0] == Reason.UNDISTURBED
    working = msgspec.structs.replace(back, pods=(AGENT,))
    assert _written(decide(working), READY)[0] == Reason.READY


@pytest.mark.parametrize(
    ("expected", "reason"),
    [(frozenset({Operand.AGENT}), Reason.CHECKS_PENDING), (frozenset(), Reason.READY)],
    ids=["agents are Pods", "an agent that is no Pod"],
)
def test_the_wait_for_an_agent_that_does_not_come_is_limited(expected: frozenset[Operand], reason: Reason) -> None:
    back = _after(decide(observed(node=OUT)), pods=(), expected=expected)
    late = msgspec.structs.replace(back, timers=decide(back).timers, now=back.now + PATIENCE.loss_after)
    assert _written(decide(late), READY)[0] == reason


def _after(decision: Decision, **changes: object) -> Snapshot:
    """The node an hour later, with what was written."""
    return observed(state=state(conditions=(COMPLETE, *decision.conditions)), now=NOON + timedelta(hours=1), **changes)


def _written(decision: Decision, kind: NodeCondition) -> tuple[str, str]:
    return next((held.reason, held.message) for held in decision.conditions if held.type == kind)
