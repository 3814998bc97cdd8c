"""Nothing is concluded from a status that is older than what the node reports, and nobody waits for ever."""

from datetime import timedelta

import msgspec

from gpu_control_plane.api.examples import NOON
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.decide import BEHIND, decide
from gpu_control_plane.bootstrap.snapshot import Remembered, Settings
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import find
from unit.bootstrap.scene import AGENT, COMPLETE, LONG_AGO, condition, seen, state

NOT_READY = (COMPLETE, condition(NodeCondition.READY_FOR_POOLING, False, Reason.AGENT_NOT_READY))
PATIENCE = Settings()


def test_nothing_is_said_while_the_status_is_behind_the_report() -> None:
    """Its agent is back: by the status alone the node would be ready."""
    behind = seen(state=state(conditions=NOT_READY), pods=(AGENT,), report_observed=False)
    decision = decide(behind, PATIENCE)
    assert (decision.conditions, decision.again_in) == ((), PATIENCE.loss_after)
    later = msgspec.structs.replace(behind, remembered=decision.remember, now=NOON + timedelta(seconds=20))
    assert decide(later, PATIENCE).again_in == PATIENCE.loss_after - timedelta(seconds=20)
    observed = msgspec.structs.replace(later, report_observed=True)
    assert _readiness(decide(observed, PATIENCE).conditions) == Reason.READY


def test_a_status_that_stays_behind_holds_nothing_up_for_ever() -> None:
    """Inventory may be switched off. What was noticed is remembered, so that the wait does not begin anew."""
    had = Remembered(noticed={BEHIND: LONG_AGO})
    decision = decide(seen(pods=(AGENT,), report_observed=False, remembered=had), PATIENCE)
    assert _readiness(decision.conditions) == Reason.READY
    assert decision.remember.noticed[BEHIND] == LONG_AGO


def test_an_incomplete_inventory_is_told_at_once() -> None:
    """What it is about to say cannot make it worse."""
    incomplete = condition(NodeCondition.INVENTORY_COMPLETE, False, Reason.CARDS_MISSING)
    decision = decide(seen(state=state(conditions=(incomplete,)), report_observed=False), PATIENCE)
    assert _readiness(decision.conditions) == Reason.INVENTORY_INCOMPLETE


def _readiness(conditions: tuple[Condition, ...]) -> str | None:
    held = find(conditions, NodeCondition.READY_FOR_POOLING)
    return held.reason if held is not None else None
