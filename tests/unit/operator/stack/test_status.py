"""What a ClusterPolicy says of itself, for each thing that can be the matter."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.nvidia.status import NodeTrouble, OperandState, StackStatus, State
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.operator.nvidia_lease import Rival
from gpu_control_plane.operator.stack.readiness import Reach, Standing
from gpu_control_plane.operator.stack.render import Rendered
from gpu_control_plane.operator.stack.status import Picture, ignored_status, rival_condition, status_of
from gpu_control_plane.operator.status_writer import beside, replacing, status_differs

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DRIVER = Rendered(state="state-driver", enabled=True)
DCGM = Rendered(state="state-dcgm", enabled=True)
OFF = Rendered(state="state-mig-manager", enabled=False)
GOOD = Standing(ready=True, desired=3, available=3)
FRESH = Standing(ready=False, desired=3, message="its latest change has not been looked at yet")
BROKEN = Standing(
    ready=False,
    desired=3,
    available=2,
    message="it runs on 2 of 3 nodes",
    troubles=(NodeTrouble(node="gpu-7", reason="ImagePullBackOff", message="no such image"),),
)


def look(**fields: Any) -> StackStatus:
    found = seen(**fields)
    assert found is not None
    return found


def seen(**fields: Any) -> StackStatus | None:
    standings = {"state-driver": (GOOD,), "state-dcgm": (GOOD,)}
    picture: dict[str, Any] = {
        "generation": 4,
        "namespace": "gpu",
        "rendered": (DRIVER, DCGM, OFF),
        "standings": standings,
        "gpu_nodes": 3,
        "now": NOW,
    }
    return status_of(StackStatus(), Picture(**picture | fields))


def told(status: StackStatus) -> dict[str, tuple[str, str, str]]:
    return {held.type: (held.status, held.reason, held.message) for held in status.conditions}


def test_a_stack_that_works_is_ready() -> None:
    status = look()
    assert (status.state, status.namespace, status.observed_generation) == (State.READY, "gpu", 4)
    assert told(status) == {
        "Ready": ("True", "Reconciled", "All states are ready on 3 nodes."),
        "Error": ("False", "Ready", ""),
    }
    assert [(held.name, held.state, held.desired, held.ready) for held in status.states] == [
        ("state-driver", OperandState.READY, 3, 3),
        ("state-dcgm", OperandState.READY, 3, 3),
        ("state-mig-manager", OperandState.DISABLED, 0, 0),
    ]


@pytest.mark.parametrize(
    ("fields", "reason", "word"),
    [
        ({"gpu_nodes": 0}, "NoGPUNodes", "card"),
        ({"gpu_nodes": 0, "feature_labels": False}, "NFDLabelsMissing", "Node Feature Discovery"),
    ],
)
def test_without_cards_there_is_nothing_to_wait_for(fields: dict[str, Any], reason: str, word: str) -> None:
    status = look(standings={}, **fields)
    assert status.state is State.READY
    assert told(status)["Ready"][:2] == ("True", reason)
    assert word in told(status)["Ready"][2]
    assert told(status)["Error"] == ("False", "Ready", "")


@pytest.mark.parametrize(
    ("fields", "reason", "words"),
    [
        (
            {"standings": {"state-driver": (BROKEN,), "state-dcgm": (GOOD,)}},
            "OperandNotReady",
            ("state-driver: gpu-7 (ImagePullBackOff)",),
        ),
        (
            {"standings": {"state-driver": (BROKEN,), "state-dcgm": (FRESH,)}},
            "OperandNotReady",
            ("state-driver: gpu-7", "; ", "state-dcgm: its latest change"),
        ),
        (
            {"standings": {"state-driver": (GOOD, FRESH), "state-dcgm": (GOOD,)}},
            "OperandNotReady",
            ("state-driver: its latest change",),
        ),
        ({"drivers_pending": "2 nodes wait for their upgrade"}, "OperandNotReady", ("2 nodes wait",)),
        ({"unlabelled": ["gpu-9", "gpu-8"]}, "LabellingNodes", ("2 nodes", "gpu-8, gpu-9")),
        ({"problem": "driver.image: no"}, "ReconcileFailed", ("driver.image: no",)),
        ({"write_problems": {"state-dcgm": "forbidden"}}, "ReconcileFailed", ("state-dcgm: forbidden",)),
        (
            {"rendered": (Rendered(state="state-driver", enabled=True, problem="no image is named"), DCGM)},
            "ReconcileFailed",
            ("state-driver: no image is named",),
        ),
        ({"host_problems": {"gpu-3": "too old"}}, "OperandNotReady", ("state-driver: gpu-3 (HostDriver)",)),
    ],
)
def test_what_keeps_a_stack_from_being_ready_is_named(
    fields: dict[str, Any], reason: str, words: tuple[str, ...]
) -> None:
    status = look(**fields)
    assert status.state is State.NOT_READY
    assert told(status)["Ready"] == ("False", "Error", "")
    assert told(status)["Error"][:2] == ("True", reason)
    for word in words:
        assert word in told(status)["Error"][2]


def test_a_driver_of_the_host_that_will_not_do_is_named_also_where_the_stack_brings_none() -> None:
    off = Rendered(state="state-driver", enabled=False)
    validator = Rendered(state="state-operator-validation", enabled=True)
    status = look(
        rendered=(off, DCGM, validator),
        standings={validator.state: (BROKEN,)},
        host_problems={"gpu-3": "too old", "gpu-7": "does not work"},
    )
    named = {held.name: [(node.node, node.message) for node in held.nodes] for held in status.states if held.nodes}
    assert named == {validator.state: [("gpu-3", "too old"), ("gpu-7", "does not work")]}
    assert status.state is State.NOT_READY


def test_nobody_is_told_that_all_is_well_while_more_is_to_be_written() -> None:
    assert seen(converged=False) is None
    assert seen(converged=False, gpu_nodes=0, standings={}) is None
    assert look(converged=False, standings={"state-driver": (BROKEN,)}).state is State.NOT_READY


def test_a_broken_node_stands_in_the_state_with_its_reason() -> None:
    (state, *_) = look(standings={"state-driver": (BROKEN,), "state-dcgm": (GOOD,)}).states
    assert (state.state, state.desired, state.ready) == (OperandState.NOT_READY, 3, 2)
    assert state.nodes == BROKEN.troubles
    assert state.message == "it runs on 2 of 3 nodes"


def test_the_gravest_obstacle_is_told_first() -> None:
    broken = {"state-driver": (BROKEN,), "state-dcgm": (GOOD,)}
    assert told(look(standings=broken, unlabelled=["a"]))["Error"][1] == "LabellingNodes"
    assert told(look(write_problems={"state-dcgm": "no"}, unlabelled=["a"]))["Error"][1] == "ReconcileFailed"


def test_a_failed_state_says_why_and_not_where() -> None:
    (_, state, _) = look(write_problems={"state-dcgm": "forbidden " * 500}).states
    assert state.state is OperandState.FAILED
    assert state.message.startswith("forbidden")
    assert len(state.message) <= 1024


def test_a_node_is_named_once_in_a_state_and_not_too_many_are() -> None:
    many = tuple(NodeTrouble(node=f"n{number:02}", reason="x") for number in range(15))
    standings = (
        Standing(ready=False, troubles=many),
        Standing(ready=False, troubles=(*many[:3], *(NodeTrouble(node=f"m{n:02}", reason="x") for n in range(15)))),
    )
    nodes = [held.node for held in look(standings={"state-driver": standings}).states[0].nodes]
    assert len(nodes) == len(set(nodes)) == 20


def test_unknown_fields_are_told_beside_the_outcome() -> None:
    status = look(unknown=("driver.warp", "holodeck"))
    assert status.state is State.READY
    assert told(status)["UnknownFields"][:2] == ("True", "Present")
    assert "driver.warp, holodeck" in told(status)["UnknownFields"][2]
    assert "UnknownFields" not in told(look())


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    held = look()
    later = Picture(
        generation=5,
        namespace="gpu",
        rendered=(DRIVER,),
        standings={"state-driver": (GOOD,)},
        gpu_nodes=9,
        now=NOW + timedelta(hours=1),
    )
    again = status_of(held, later)
    assert again is not None
    assert {condition.last_transition_time for condition in again.conditions} == {NOW}
    assert {condition.observed_generation for condition in again.conditions} == {5}


def test_an_ignored_policy_names_the_one_in_force() -> None:
    status = ignored_status(StackStatus(), "older", "gpu", 2, NOW)
    assert (status.state, status.states) == (State.IGNORED, ())
    assert told(status)["Error"][:2] == ("True", "Ignored")
    assert "older" in told(status)["Error"][2]


THEIRS = Condition(type="Ready", status="True", reason="Reconciled", last_transition_time=NOW)


def test_beside_the_rival_nothing_of_its_status_changes() -> None:
    held = StackStatus(state=State.READY, namespace="theirs", conditions=(THEIRS,))
    rival = Rival(namespace="gpu-operator", holder="pod-1", until=NOW)
    added = rival_condition(held.conditions, rival, 1, NOW)
    status = beside(held, added)
    assert (status.state, status.namespace) == (State.READY, "theirs")
    assert status.conditions == (THEIRS, added)
    assert "pod-1" in added.message
    assert beside(StackStatus(), added).state is State.NOT_READY


def test_only_what_is_ours_makes_a_status_differ() -> None:
    held = look()
    strange = Condition(type="Strange", status="True", reason="x", last_transition_time=NOW)
    replaced = StackStatus(
        state=held.state,
        namespace=held.namespace,
        observed_generation=held.observed_generation,
        states=held.states,
        conditions=(strange, *reversed(held.conditions)),
    )
    assert not status_differs(replaced, held)
    assert status_differs(look(unknown=("a",)), held)
    assert status_differs(look(gpu_nodes=4), held)


GONE = "node.kubernetes.io/unreachable:NoSchedule"


def barring(barred: dict[str, str], *names: str) -> dict[str, tuple[Standing, ...]]:
    """Two states that run wherever Kubernetes lets them; one of them comes to these nodes, none to the others."""
    bare = Standing(ready=True, reach=Reach((), barred))
    return {"state-driver": (bare,), "state-dcgm": (msgspec.structs.replace(bare, reach=Reach(names, barred)),)}


@pytest.mark.parametrize(
    ("barred", "says"),
    [
        ({"gpu-2": GONE}, f"All states are ready on 2 nodes. Out of reach are 1: gpu-2 ({GONE})."),
        (
            {"gpu-2": GONE, "gpu-3": "team=ml:NoSchedule"},
            (
                f"All states are ready on 1 nodes. Out of reach are 2: gpu-2 ({GONE}), gpu-3 (team=ml:NoSchedule)."
                " Pods bear the taints that daemonsets.tolerations names."
            ),
        ),
    ],
)
def test_nodes_out_of_reach_make_no_stack_unready_but_are_named(barred: dict[str, str], says: str) -> None:
    status = look(standings=barring(barred | {"gpu-1": "only for one"}, "gpu-1"))
    assert status.state is State.READY
    assert told(status)["Ready"] == ("True", "Reconciled", says)


def test_a_stack_that_reaches_no_node_at_all_is_not_ready() -> None:
    status = look(standings=barring({f"gpu-{number}": GONE for number in range(4)}))
    assert status.state is State.NOT_READY
    kind, reason, message = told(status)["Error"]
    assert (kind, reason) == ("True", "OperandNotReady")
    assert message == f"no GPU node takes pods of the stack: {', '.join(f'gpu-{n} ({GONE})' for n in range(3))}, …."


def test_nodes_that_nobody_wants_pods_on_are_not_out_of_reach() -> None:
    assert look(standings=barring({})).state is State.READY


def test_a_count_that_has_become_zero_does_not_stay() -> None:
    """What is 0 or empty is not encoded, and a merge patch leaves what it does not name."""
    held = {"state": "notReady", "upgrade": {"failed": 1, "total": 8}, "namespace": "a"}
    patch = replacing(held, {"state": "ready", "upgrade": {"total": 8}, "states": [1]})
    assert patch == {"state": "ready", "upgrade": {"failed": None, "total": 8}, "namespace": None, "states": [1]}
