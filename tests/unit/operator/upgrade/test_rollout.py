"""Which nodes start next: limits, canaries, pauses, and nodes that cannot start or need no slot."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Canary, Drain, UpgradePolicy
from gpu_control_plane.operator.upgrade.node_view import DriverPod, NodeView
from gpu_control_plane.operator.upgrade.rollout import free_parallel_slots, free_slots, rollout, scaled_value
from unit.operator.upgrade.builders import CURRENT, NOW, ORPHAN, STALE, view

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


def starts(wanted: UpgradePolicy, views: list[NodeView]) -> list[str]:
    return list(rollout(wanted, views, NOW).start)


def test_nodes_start_in_the_order_of_their_names() -> None:
    assert starts(policy(2), nodes(c=S.REQUIRED, a=S.REQUIRED, b=S.REQUIRED)) == ["a", "b"]


def test_nodes_in_progress_leave_fewer_slots() -> None:
    assert starts(policy(2), nodes(a=S.VALIDATION_REQUIRED, b=S.REQUIRED, c=S.REQUIRED)) == ["b"]


def test_a_failed_node_occupies_no_slot_but_is_out_of_service() -> None:
    views = nodes(a=S.FAILED, b=S.REQUIRED, c=S.REQUIRED)
    assert starts(policy(1), views) == ["b"]
    assert starts(policy(1, 1), views) == []
    assert starts(policy(1, 2), views) == ["b"]


def test_a_node_that_only_has_to_be_uncordoned_occupies_no_slot() -> None:
    assert starts(policy(1), nodes(a=S.UNCORDON_REQUIRED, b=S.REQUIRED)) == ["b"]


def test_a_node_that_is_cordoned_already_needs_a_slot_but_takes_no_further_node_out_of_service() -> None:
    views = [node("a", S.POD_RESTART_REQUIRED), node("b"), node("c", unschedulable=True), node("d", unschedulable=True)]
    assert starts(policy(2, 3), views) == ["c"]
    assert starts(policy(1, 3), views) == []


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
def test_a_node_that_cannot_start_does_not_keep_others_waiting(hindered: NodeView) -> None:
    assert starts(policy(1, 2), [hindered, node("b"), node("c", S.DONE)]) == ["b"]


def test_no_node_starts_while_upgrades_are_paused() -> None:
    found = rollout(policy(paused=True), nodes(a=S.REQUIRED), NOW)
    assert not found.start
    assert found.message == "paused: no further node begins"


def test_no_node_starts_under_a_policy_with_an_invalid_selector() -> None:
    found = rollout(policy(drain=Drain(enable=True, pod_selector="a b")), nodes(a=S.REQUIRED), NOW)
    assert not found.start
    assert found.message.startswith("drain.podSelector of the upgrade policy")


@pytest.mark.parametrize("most", [-3, "-3", "many", "", "25 %", "٣"])
def test_no_node_starts_under_a_policy_whose_limit_is_no_number(most: int | str) -> None:
    """Our schema refuses it; NVIDIA's, where it is installed, does not."""
    found = rollout(policy(5, most), nodes(a=S.REQUIRED), NOW)
    assert (list(found.start), found.slots) == ([], 0)
    assert found.message.startswith(f"stopped: maxUnavailable of the upgrade policy is {most};")


FIRST = {"tier": "first"}
NO_CANARY = (
    "stopped: canary.nodeSelector of the upgrade policy, {}, selects none of the nodes that may be upgraded; "
    "label those that go first, or remove the canary"
)


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
        (Canary(node_selector={"tier": "none", "a": "b"}), nodes(a=S.REQUIRED), [], NO_CANARY.format("a=b,tier=none")),
        (
            Canary(node_selector=FIRST),
            [node("a"), node("b", labels={**FIRST, NodeLabel.UPGRADE_SKIP: "true"})],
            [],
            NO_CANARY.format("tier=first"),
        ),
    ],
    ids=[
        "the first by name",
        "in progress",
        "done",
        "done by its label, but its pod is old",
        "failed",
        "one that is skipped is none",
        "one without a driver of ours is none",
        "one that cannot begin is told",
        "by selector",
        "by selector, done",
        "no node is selected",
        "the only one is skipped",
    ],
)
def test_canaries_are_upgraded_first(canary: Canary, views: list[NodeView], expected: list[str], message: str) -> None:
    found = rollout(policy(5, canary=canary), views, NOW)
    assert (list(found.start), found.message) == (expected, message)


def test_nodes_without_a_driver_of_ours_do_not_count_for_percentages() -> None:
    """A quarter of four is one, of the twelve nodes with cards it would be three."""
    bare = [view(S.NONE, name=f"host-{number}") for number in range(8)]
    views = nodes(a=S.REQUIRED, b=S.REQUIRED, c=S.REQUIRED, d=S.REQUIRED)
    assert starts(policy(0, "25%"), [*views, *bare]) == ["a"]
    cordoned = [replace(held, unschedulable=True) for held in bare]
    assert starts(policy(0, "25%"), [*views, *cordoned]) == ["a"]


@pytest.mark.parametrize(
    ("wanted", "views", "message"),
    [
        (
            policy(1),
            nodes(a=S.DRAIN_REQUIRED, b=S.REQUIRED),
            "1 node is in progress, and no more may be (maxParallelUpgrades)",
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
            "waiting for nodes that are without a DaemonSet that would bring a driver: a",
        ),
        (
            policy(),
            [node("a", missing_secret="operands/licence")],
            "waiting for nodes that are without the Secret operands/licence, which their driver needs: a",
        ),
        (policy(), nodes(a=S.DONE), ""),
    ],
)
def test_the_message_says_why_nodes_wait(wanted: UpgradePolicy, views: list[NodeView], message: str) -> None:
    assert rollout(wanted, views, NOW).message == message


def test_the_first_write_is_that_of_a_node_with_a_slot() -> None:
    same: Mapping[str, str] = {"digest": "abc", "wanted_digest": "abc"}
    found = rollout(policy(), [node("a"), node("b", pod=replace(STALE, **same))], NOW)
    assert {name: change.state for name, change in found.start.items()} == {
        "a": S.CORDON_REQUIRED,
        "b": S.POD_RESTART_REQUIRED,
    }


class Numbers(msgspec.Struct, frozen=True):
    """The numbers of a rollout at one moment."""

    total: int
    required: int
    in_progress: int
    unavailable: int
    parallel: int
    most: int

    @property
    def free_slots(self) -> int:
        return free_slots(
            total=self.total,
            required=self.required,
            in_progress=self.in_progress,
            unavailable=self.unavailable,
            parallel=self.parallel,
            max_unavailable=self.most,
        )


_counts = st.integers(0, 60)
_moments = st.builds(Numbers, _counts, _counts, _counts, _counts, st.integers(0, 20), _counts)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (Numbers(8, 8, 0, 0, 1, scaled_value(8, "25%")), 1),
        (Numbers(8, 8, 0, 0, 4, scaled_value(8, "25%")), 2),
        (Numbers(10, 7, 2, 2, 0, scaled_value(10, "50%")), 3),
        (Numbers(10, 9, 1, 1, 5, scaled_value(10, "30%")), 2),
        (Numbers(3, 1, 1, 1, 1, scaled_value(3, "25%")), 0),
        (Numbers(4, 4, 0, 0, 2, 0), 0),
        (Numbers(4, 4, 0, 0, 0, scaled_value(4, "100%")), 4),
        (Numbers(4, 4, 0, 2, 0, scaled_value(4, "100%")), 4),
        (Numbers(4, 2, 0, 0, 3, 4), 2),
    ],
)
def test_free_slots_are_those_of_nvidias_operator(moment: Numbers, expected: int) -> None:
    assert moment.free_slots == expected


@pytest.mark.parametrize(
    ("of", "wanted", "expected"), [(8, "25%", 2), (9, "25%", 3), (1, "1%", 1), (0, "50%", 0), (5, "3", 3), (5, 7, 7)]
)
def test_a_percentage_is_rounded_up(of: int, wanted: int | str, expected: int) -> None:
    assert scaled_value(of, wanted) == expected


@given(_moments)
def test_free_slots_stay_within_every_limit(moment: Numbers) -> None:
    free = moment.free_slots
    assert 0 <= free <= min(moment.required, moment.most)
    if moment.parallel:
        assert free == 0 or moment.in_progress + free <= moment.parallel
    if moment.most < moment.total:
        assert free == 0 or moment.unavailable + free <= moment.most


@given(_moments)
def test_a_higher_limit_never_means_fewer_slots(moment: Numbers) -> None:
    if moment.parallel:
        assert replace(moment, parallel=moment.parallel + 1).free_slots >= moment.free_slots
    assert replace(moment, most=moment.most + 1).free_slots >= moment.free_slots
    assert replace(moment, in_progress=moment.in_progress + 1).free_slots <= moment.free_slots
    assert replace(moment, unavailable=moment.unavailable + 1).free_slots <= moment.free_slots


@given(_moments)
def test_a_node_out_of_service_is_limited_by_parallel_upgrades_alone(moment: Numbers) -> None:
    parallel_slots = free_parallel_slots(
        required=moment.required, in_progress=moment.in_progress, parallel=moment.parallel
    )
    assert moment.free_slots <= parallel_slots <= moment.required
    assert (
        replace(moment, most=moment.total, unavailable=0).free_slots == min(parallel_slots, moment.total)
        or moment.total == 0
    )
