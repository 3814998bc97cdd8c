"""Whose turn it is: bounds, canaries, pauses, and nodes that cannot or need not wait in the line."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Canary, Drain, UpgradePolicy
from gpu_control_plane.operator.upgrade.node_view import DriverPod, NodeView
from gpu_control_plane.operator.upgrade.rollout import rollout
from unit.operator.upgrade.nodes import CURRENT, NOW, ORPHAN, STALE, view

S = UpgradeState


def policy(parallel: int = 2, most: int | str = "100%", **rest: object) -> UpgradePolicy:
    return UpgradePolicy(auto_upgrade=True, max_parallel_upgrades=parallel, max_unavailable=most, **rest)  # type: ignore[arg-type]


def nodes(**states: UpgradeState) -> list[NodeView]:
    """Nodes by name, each in its state; the driver of those that are done is current."""
    return [node(name, state) for name, state in states.items()]


def node(name: str, state: UpgradeState = S.REQUIRED, pod: DriverPod | None = None, **rest: object) -> NodeView:
    cordoned = state not in {S.NONE, S.DONE, S.REQUIRED, S.CORDON_REQUIRED}
    held = pod or (CURRENT if state is S.DONE else STALE)
    given: dict[str, object] = {"unschedulable": cordoned, **rest}
    return view(state, held, name=name, **given)  # type: ignore[arg-type]


def begins(wanted: UpgradePolicy, views: list[NodeView]) -> list[str]:
    return list(rollout(wanted, views, NOW).begin)


def test_nodes_begin_in_the_order_of_their_names() -> None:
    assert begins(policy(2), nodes(c=S.REQUIRED, a=S.REQUIRED, b=S.REQUIRED)) == ["a", "b"]


def test_nodes_under_way_leave_fewer_turns() -> None:
    assert begins(policy(2), nodes(a=S.VALIDATION_REQUIRED, b=S.REQUIRED, c=S.REQUIRED)) == ["b"]


def test_a_failed_node_holds_no_turn_but_is_out_of_service() -> None:
    views = nodes(a=S.FAILED, b=S.REQUIRED, c=S.REQUIRED)
    assert begins(policy(1), views) == ["b"]
    assert begins(policy(1, 1), views) == []
    assert begins(policy(1, 2), views) == ["b"]


def test_a_node_that_only_has_to_be_uncordoned_holds_no_turn() -> None:
    assert begins(policy(1), nodes(a=S.UNCORDON_REQUIRED, b=S.REQUIRED)) == ["b"]


def test_a_node_that_is_cordoned_already_needs_a_turn_but_costs_no_service() -> None:
    views = [node("a", S.POD_RESTART_REQUIRED), node("b"), node("c", unschedulable=True), node("d", unschedulable=True)]
    assert begins(policy(2, 3), views) == ["c"]
    assert begins(policy(1, 3), views) == []


@pytest.mark.parametrize(
    "hindered",
    [
        node("a", labels={NodeLabel.UPGRADE_SKIP: "true"}),
        node("a", ready=False),
        view(S.REQUIRED, name="a"),
        node("a", pod=CURRENT),
    ],
    ids=["skipped", "not ready", "without a driver pod", "right by itself"],
)
def test_a_node_that_cannot_begin_holds_up_nobody(hindered: NodeView) -> None:
    assert begins(policy(1, 2), [hindered, node("b"), node("c", S.DONE)]) == ["b"]


def test_nobody_begins_while_it_is_paused() -> None:
    found = rollout(policy(paused=True), nodes(a=S.REQUIRED), NOW)
    assert not found.begin
    assert found.message == "paused: no further node begins"


def test_nobody_begins_under_a_policy_that_makes_no_sense() -> None:
    found = rollout(policy(drain=Drain(enable=True, pod_selector="a b")), nodes(a=S.REQUIRED), NOW)
    assert not found.begin
    assert found.message.startswith("drain.podSelector of the upgrade policy")


FIRST = {"tier": "first"}


@pytest.mark.parametrize(
    ("canary", "views", "expected", "message"),
    [
        (Canary(nodes=1), nodes(a=S.REQUIRED, b=S.REQUIRED), ["a"], "a goes first"),
        (Canary(nodes=1), nodes(a=S.CORDON_REQUIRED, b=S.REQUIRED), [], "a goes first"),
        (Canary(nodes=1), nodes(a=S.DONE, b=S.REQUIRED), ["b"], ""),
        (Canary(nodes=1), [node("a", S.DONE, STALE), node("b")], [], "a goes first"),
        (Canary(nodes=1), nodes(a=S.FAILED, b=S.REQUIRED), [], "stopped: the upgrade failed on a, which goes first"),
        (
            Canary(nodes=1),
            [node("a", labels={NodeLabel.UPGRADE_SKIP: "true"}), node("b"), node("c")],
            ["b"],
            "b goes first",
        ),
        (Canary(nodes=1), [view(S.NONE, name="a"), node("b"), node("c")], ["b"], "b goes first"),
        (Canary(nodes=1), [node("a", ready=False), node("b")], [], "a goes first, but a is not ready"),
        (Canary(node_selector=FIRST), [node("a"), node("b", labels=FIRST)], ["b"], "b goes first"),
        (Canary(node_selector=FIRST), [node("a"), node("b", S.DONE, labels=FIRST)], ["a"], ""),
        (Canary(node_selector={"tier": "none"}), nodes(a=S.REQUIRED), ["a"], ""),
    ],
    ids=[
        "the first by name",
        "under way",
        "done",
        "done by its label, but its pod is old",
        "failed",
        "one that is skipped is none",
        "one without a driver of ours is none",
        "one that cannot begin is told",
        "by selector",
        "by selector, done",
        "nobody is selected",
    ],
)
def test_canaries_go_first(canary: Canary, views: list[NodeView], expected: list[str], message: str) -> None:
    found = rollout(policy(5, canary=canary), views, NOW)
    assert (list(found.begin), found.message) == (expected, message)


def test_nodes_without_a_driver_of_ours_take_no_part_in_a_share() -> None:
    """A quarter of four is one, of the twelve nodes with cards it would be three."""
    bare = [view(S.NONE, name=f"host-{number}") for number in range(8)]
    views = nodes(a=S.REQUIRED, b=S.REQUIRED, c=S.REQUIRED, d=S.REQUIRED)
    assert begins(policy(0, "25%"), [*views, *bare]) == ["a"]
    cordoned = [replace(held, unschedulable=True) for held in bare]
    assert begins(policy(0, "25%"), [*views, *cordoned]) == ["a"]


@pytest.mark.parametrize(
    ("wanted", "views", "message"),
    [
        (
            policy(1),
            nodes(a=S.DRAIN_REQUIRED, b=S.REQUIRED),
            "1 node is under way, and no more may be (maxParallelUpgrades)",
        ),
        (
            policy(0, 1),
            nodes(a=S.FAILED, b=S.REQUIRED),
            "1 node is out of service, and no more than 1 may be (maxUnavailable)",
        ),
        (policy(), [node("a", ready=False)], "waiting for nodes that are not ready: a"),
        (
            policy(),
            [node("a", pod=ORPHAN, wanted="")],
            "waiting for nodes that are to get a driver from nobody: a",
        ),
        (policy(), nodes(a=S.DONE), ""),
    ],
)
def test_it_says_what_is_waited_for(wanted: UpgradePolicy, views: list[NodeView], message: str) -> None:
    assert rollout(wanted, views, NOW).message == message


def test_the_first_write_is_that_of_a_node_whose_turn_it_is() -> None:
    same: Mapping[str, str] = {"digest": "abc", "wanted_digest": "abc"}
    found = rollout(policy(), [node("a"), node("b", pod=replace(STALE, **same))], NOW)
    assert {name: change.state for name, change in found.begin.items()} == {
        "a": S.CORDON_REQUIRED,
        "b": S.POD_RESTART_REQUIRED,
    }
