"""Our agent releases a driver before it is replaced; its checks afterwards count where NVIDIA's validator is off."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.operator.upgrade.actions import PAUSED, DeleteDriverPod, NodePatch, Wait
from gpu_control_plane.operator.upgrade.driver_restart import validation_problem
from gpu_control_plane.operator.upgrade.node_view import AgentView, NodeView, ValidatorPod
from gpu_control_plane.operator.upgrade.step import step, switch_off
from unit.operator.upgrade.builders import CURRENT, NOW, POLICY, STALE, view

S = UpgradeState
AGENT = AgentView()
HELD: dict[str, str] = {NodeLabel.AGENT: PAUSED}
CHECKED = AgentView(driver="580.1", checked_driver="580.1", passed={"driver": NOW, "cuda": NOW})
NEW = replace(CURRENT, version="580.1")


def restarting(*, agent: AgentView | None = AGENT, labels: Mapping[str, str] | None = None, **rest: object) -> NodeView:
    given: dict[str, object] = {"unschedulable": True, **rest}
    return view(S.POD_RESTART_REQUIRED, STALE, agent=agent, labels=labels, **given)  # type: ignore[arg-type]


def test_the_agent_is_paused_by_the_write_that_leads_to_the_restart() -> None:
    node = view(S.POD_DELETION_REQUIRED, STALE, unschedulable=True, agent=AGENT)
    found = step(node, POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert (found.state, found.labels[NodeLabel.AGENT]) == (S.POD_RESTART_REQUIRED, PAUSED)


def test_an_agent_that_is_not_paused_yet_is_paused_before_the_pod_is_deleted() -> None:
    found = step(restarting(), POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.labels == HELD


def test_the_driver_pod_is_deleted_when_the_agent_has_released_the_driver() -> None:
    assert step(restarting(labels=HELD), POLICY, NOW + 59) == Wait(
        reason="our agent has to release the driver", until=NOW + 60
    )
    found = step(restarting(labels=HELD, agent=AgentView(quiesced=True)), POLICY, NOW)
    assert isinstance(found, DeleteDriverPod)
    assert not found.warning


def test_an_agent_that_does_not_release_the_driver_is_waited_for_no_longer_than_a_minute() -> None:
    found = step(restarting(labels=HELD), POLICY, NOW + 60)
    assert isinstance(found, DeleteDriverPod)
    assert found.warning


@pytest.mark.parametrize(
    ("agent", "labels"),
    [(None, {}), (AgentView(alive=False), {}), (AGENT, {NodeLabel.AGENT: "false"})],
    ids=["none", "dead", "kept away by a person"],
)
def test_without_an_agent_there_is_no_wait(agent: AgentView | None, labels: Mapping[str, str]) -> None:
    assert isinstance(step(restarting(agent=agent, labels=labels), POLICY, NOW), DeleteDriverPod)


@pytest.mark.parametrize(
    "node",
    [
        view(S.POD_RESTART_REQUIRED, CURRENT, labels=HELD, agent=AGENT),
        view(S.POD_RESTART_REQUIRED, labels=HELD, agent=AGENT, annotations={NodeAnnotation.STEP_SINCE: "1"}),
    ],
    ids=["the new driver is ready", "it failed"],
)
def test_the_agent_may_use_the_driver_again_before_it_is_checked(node: NodeView) -> None:
    found = step(node, POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.labels[NodeLabel.AGENT] is None
    assert found.state in {S.VALIDATION_REQUIRED, S.FAILED}


def test_switching_off_unpauses_the_agent() -> None:
    change = switch_off(restarting(labels=HELD))
    assert change is not None
    assert change.labels[NodeLabel.AGENT] is None


@pytest.mark.parametrize(
    ("agent", "proven"),
    [
        (CHECKED, True),
        (replace(CHECKED, driver=""), True),
        (replace(CHECKED, quiesced=True), False),
        (replace(CHECKED, passed={"driver": NOW, "cuda": CURRENT.created - 1}), False),
        (replace(CHECKED, passed={"driver": NOW}), False),
        (replace(CHECKED, failed={"cuda": "no kernel ran"}), False),
        (replace(CHECKED, driver="580.2"), False),
        (replace(CHECKED, driver="570.1", checked_driver="570.1"), False),
        (None, False),
    ],
    ids=[
        "all is well",
        "the node does not say its driver",
        "paused",
        "cuda checked before the restart",
        "cuda not checked",
        "cuda failed",
        "another driver since",
        "the old driver",
        "no agent",
    ],
)
def test_checks_of_the_agent_count_for_the_new_driver_only(agent: AgentView | None, proven: bool) -> None:
    assert (validation_problem(view(S.VALIDATION_REQUIRED, NEW, agent=agent)) is None) is proven


def test_where_nvidias_validator_runs_it_decides() -> None:
    node = view(S.VALIDATION_REQUIRED, NEW, agent=CHECKED, validators=(ValidatorPod(name="v", ready=False),))
    assert validation_problem(node) == "the validator v is not ready"
    assert validation_problem(replace(node, agent=None, validators=(ValidatorPod(name="v"),))) is None
