"""No condition is written by a status that is older than the latest report, and the wait for it is limited."""

from datetime import timedelta

import msgspec

from gpu_control_plane.api.examples import NOON
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.decide import decide
from gpu_control_plane.bootstrap.snapshot import Awaited, Settings, Timers
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import find
from unit.bootstrap.builders import AGENT, COMPLETE, LONG_AGO, condition, observed, state

NOT_READY = (COMPLETE, condition(NodeCondition.READY_FOR_POOLING, False, Reason.AGENT_NOT_READY))
PATIENCE = Settings()


def test_no_condition_is_written_while_inventory_has_not_taken_the_report_in() -> None:
    """Its agent is back: by the status alone the node would be ready."""
    behind = observed(state=state(conditions=NOT_READY), pods=(AGENT,), report_observed=False)
    decision = decide(behind, PATIENCE)
    assert (decision.conditions, decision.again_in) == ((), PATIENCE.loss_after)
    later = msgspec.structs.replace(behind, timers=decision.timers, now=NOON + timedelta(seconds=20))
    assert decide(later, PATIENCE).again_in == PATIENCE.loss_after - timedelta(seconds=20)
    now_observed = msgspec.structs.replace(later, report_observed=True)
    assert _readiness(decide(now_observed, PATIENCE).conditions) == Reason.READY


def test_a_report_that_is_never_taken_in_holds_nothing_up_for_ever() -> None:
    """Inventory may be switched off. The timer goes on, so that the wait does not begin anew."""
    had = Timers(awaited_since={Awaited.REPORT_OBSERVED: LONG_AGO})
    decision = decide(observed(pods=(AGENT,), report_observed=False, timers=had), PATIENCE)
    assert _readiness(decision.conditions) == Reason.READY
    assert decision.timers.awaited_since[Awaited.REPORT_OBSERVED] == LONG_AGO


def test_an_incomplete_inventory_is_written_at_once() -> None:
    """What inventory is about to write cannot make it worse."""
    incomplete = condition(NodeCondition.INVENTORY_COMPLETE, False, Reason.CARDS_MISSING)
    decision = decide(observed(state=state(conditions=(incomplete,)), report_observed=False), PATIENCE)
    assert _readiness(decision.conditions) == Reason.INVENTORY_INCOMPLETE


def _readiness(conditions: tuple[Condition, ...]) -> str | None:
    held = find(conditions, NodeCondition.READY_FOR_POOLING)
    return held.reason if held is not None else None
