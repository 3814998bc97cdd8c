"""The state of an operand: the table of transitions as a whole, and as docs/inventory.md shows it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpu_control_plane.api.examples import NOON
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.bootstrap.operand_status import (
    TRANSITIONS,
    Observation,
    OperandState,
    Transition,
    Until,
    operand_statuses,
)
from gpu_control_plane.bootstrap.operands import Operand
from gpu_control_plane.bootstrap.snapshot import Settings, Snapshot, Timers
from unit.bootstrap.builders import COMPLETE, JUST_NOW, LONG_AGO, condition, node, observed, pod, state

PAGE = (Path(__file__).parents[3] / "docs/inventory.md").read_text()
SETTINGS = Settings()
EXPORTER = Operand.NVIDIA_EXPORTER
"""An operand that is not expected on every node, and whose loss conditions name."""
SAID_LOST = (COMPLETE, condition(NodeCondition.MONITORING_MISSING, True, Reason.MONITORING_NOT_READY))


def snapshot(
    pods: tuple[Pod, ...] = (),
    *,
    missing_since: bool | None = None,
    reachable: bool = True,
    said_lost: bool = False,
    expected: bool = True,
) -> Snapshot:
    """With `missing_since`, the operand had a Pod: until long ago (True), or until just now (False)."""
    since = {True: LONG_AGO, False: JUST_NOW}
    return observed(
        state=state(conditions=SAID_LOST if said_lost else (COMPLETE,)),
        node=node(ready=reachable),
        pods=pods,
        expected=frozenset({EXPORTER}) if expected else frozenset(),
        timers=Timers(missing_since={EXPORTER: since[missing_since]}) if missing_since is not None else Timers(),
    )


@pytest.mark.parametrize("said_lost", [False, True])
@pytest.mark.parametrize(
    ("seen", "observation"),
    [
        ({"pods": (pod(EXPORTER, since=LONG_AGO),)}, Observation.READY_LONG),
        ({"pods": (pod(EXPORTER, since=JUST_NOW),)}, Observation.READY),
        ({"pods": (pod(EXPORTER, ready=False, since=JUST_NOW),)}, Observation.NOT_READY),
        ({"pods": (pod(EXPORTER, ready=False),)}, Observation.NOT_READY_LONG),
        ({"missing_since": False}, Observation.NOT_READY),
        ({"missing_since": True}, Observation.NOT_READY_LONG),
        ({"missing_since": False, "expected": False}, Observation.UNEXPECTED),
        ({"missing_since": True, "expected": False}, Observation.UNEXPECTED_LONG),
        ({"missing_since": True, "expected": False, "reachable": False}, Observation.UNEXPECTED_LONG),
        ({"pods": (pod(EXPORTER),), "reachable": False}, Observation.UNREACHABLE_READY),
        ({"pods": (pod(EXPORTER, ready=False),), "reachable": False}, Observation.UNREACHABLE),
        ({"missing_since": True, "reachable": False}, Observation.UNREACHABLE),
    ],
)
def test_what_is_observed_gives_the_state_and_the_deadline_of_the_table(
    seen: dict[str, Any], observation: Observation, said_lost: bool
) -> None:
    found = operand_statuses(snapshot(said_lost=said_lost, **seen), SETTINGS)
    expected = TRANSITIONS[observation][said_lost]
    status = found.get(EXPORTER)
    assert (status.state if status is not None else OperandState.ABSENT) is expected.state
    patience = {Until.LOSS: SETTINGS.loss_after, Until.RETURN: SETTINGS.return_after, None: None}[expected.until]
    assert found.again_at == (JUST_NOW + patience if patience is not None else None)


def test_every_observation_has_its_row() -> None:
    assert set(TRANSITIONS) == set(Observation)


def test_a_deadline_is_where_a_longer_wait_gives_another_state() -> None:
    """So nothing stays as it is for want of a look, and no look is in vain."""
    longer = {
        Observation.READY: Observation.READY_LONG,
        Observation.NOT_READY: Observation.NOT_READY_LONG,
        Observation.UNEXPECTED: Observation.UNEXPECTED_LONG,
    }
    for observation, changes in TRANSITIONS.items():
        for said_lost, change in enumerate(changes):
            later = TRANSITIONS[longer.get(observation, observation)][said_lost]
            assert (change.until is not None) == (later.state is not change.state)


def test_a_loss_that_was_said_is_taken_back_only_by_a_pod_that_is_ready_for_long() -> None:
    taken_back = {
        observation
        for observation, (_, after) in TRANSITIONS.items()
        if after.state in (OperandState.WORKING, OperandState.RESTARTING)
    }
    assert taken_back == {Observation.READY_LONG}


def test_nothing_is_concluded_from_pods_while_the_kubelet_does_not_answer() -> None:
    for observation in (Observation.UNREACHABLE_READY, Observation.UNREACHABLE):
        not_said, said = TRANSITIONS[observation]
        assert not_said.state in (OperandState.WORKING, OperandState.RESTARTING)
        assert said.state is OperandState.LOST


def test_the_page_shows_the_table() -> None:
    for observation, (not_said, said) in TRANSITIONS.items():
        assert f"| {observation.value} | {_shown(not_said)} | {_shown(said)} |" in PAGE
    for each in OperandState:
        assert f"| {each.name.capitalize()} | {each.value} |" in PAGE


def _shown(change: Transition) -> str:
    return change.state.name.capitalize() + (f", until `{change.until.value}`" if change.until is not None else "")


def test_times_come_from_the_pods() -> None:
    """A controller that was down in between comes to the same state at the same time."""
    found = operand_statuses(snapshot((pod(EXPORTER, ready=False, since=JUST_NOW),)), SETTINGS)
    assert found.again_at == JUST_NOW + SETTINGS.loss_after
    assert found.again_at > NOON + timedelta(seconds=1)
