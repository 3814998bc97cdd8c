"""The status of a ClusterPolicy, for each reason why it is ready or not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.nvidia.status import NodeTrouble, OperandState, StackStatus, State
from gpu_control_plane.kube.lease_watch import LeaseHolder
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.operator.stack.readiness import NodeCoverage, Readiness
from gpu_control_plane.operator.stack.render import RenderedState
from gpu_control_plane.operator.stack.status import (
    PolicyStatusInput,
    ignored_status,
    other_operator_condition,
    status_of,
)
from gpu_control_plane.operator.status_writer import replacement_patch, status_differs, with_condition

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DRIVER = RenderedState(state="state-driver", enabled=True)
DCGM = RenderedState(state="state-dcgm", enabled=True)
OFF = RenderedState(state="state-mig-manager", enabled=False)
GOOD = Readiness(ready=True, desired=3, available=3)
FRESH = Readiness(ready=False, desired=3, message="its latest change has not been looked at yet")
BROKEN = Readiness(
    ready=False,
    desired=3,
    available=2,
    message="it runs on 2 of 3 nodes",
    troubles=(NodeTrouble(node="gpu-7", reason="ImagePullBackOff", message="no such image"),),
)


def status_with(**fields: Any) -> StackStatus:
    found = maybe_status(**fields)
    assert found is not None
    return found


def maybe_status(**fields: Any) -> StackStatus | None:
    observed: dict[str, Any] = {
        "generation": 4,
        "namespace": "gpu",
        "rendered": (DRIVER, DCGM, OFF),
        "readiness": {"state-driver": (GOOD,), "state-dcgm": (GOOD,)},
        "gpu_nodes": 3,
        "now": NOW,
    }
    return status_of(StackStatus(), PolicyStatusInput(**observed | fields))


def conditions(status: StackStatus) -> dict[str, tuple[str, str, str]]:
    return {held.type: (held.status, held.reason, held.message) for held in status.conditions}


def test_a_stack_that_works_is_ready() -> None:
    status = status_with()
    assert (status.state, status.namespace, status.observed_generation) == (State.READY, "gpu", 4)
    assert conditions(status) == {
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
def test_without_cards_the_stack_is_ready(fields: dict[str, Any], reason: str, word: str) -> None:
    status = status_with(readiness={}, **fields)
    assert status.state is State.READY
    assert conditions(status)["Ready"][:2] == ("True", reason)
    assert word in conditions(status)["Ready"][2]
    assert conditions(status)["Error"] == ("False", "Ready", "")


@pytest.mark.parametrize(
    ("fields", "reason", "words"),
    [
        (
            {"readiness": {"state-driver": (BROKEN,), "state-dcgm": (GOOD,)}},
            "OperandNotReady",
            ("state-driver: gpu-7 (ImagePullBackOff)",),
        ),
        (
            {"readiness": {"state-driver": (BROKEN,), "state-dcgm": (FRESH,)}},
            "OperandNotReady",
            ("state-driver: gpu-7", "; ", "state-dcgm: its latest change"),
        ),
        (
            {"readiness": {"state-driver": (GOOD, FRESH), "state-dcgm": (GOOD,)}},
            "OperandNotReady",
            ("state-driver: its latest change",),
        ),
        ({"drivers_pending": "2 nodes wait for their upgrade"}, "OperandNotReady", ("2 nodes wait",)),
        ({"unlabelled": ["gpu-9", "gpu-8"]}, "LabellingNodes", ("2 nodes", "gpu-8, gpu-9")),
        ({"problem": "driver.image: no"}, "ReconcileFailed", ("driver.image: no",)),
        ({"write_problems": {"state-dcgm": "forbidden"}}, "ReconcileFailed", ("state-dcgm: forbidden",)),
        (
            {"rendered": (RenderedState(state="state-driver", enabled=True, problem="no image is named"), DCGM)},
            "ReconcileFailed",
            ("state-driver: no image is named",),
        ),
        ({"host_problems": {"gpu-3": "too old"}}, "OperandNotReady", ("state-driver: gpu-3 (HostDriver)",)),
    ],
)
def test_the_reason_why_a_stack_is_not_ready_is_named(
    fields: dict[str, Any], reason: str, words: tuple[str, ...]
) -> None:
    status = status_with(**fields)
    assert status.state is State.NOT_READY
    assert conditions(status)["Ready"] == ("False", "Error", "")
    assert conditions(status)["Error"][:2] == ("True", reason)
    for word in words:
        assert word in conditions(status)["Error"][2]


def test_a_host_driver_that_cannot_be_used_is_named_also_where_the_stack_brings_no_driver() -> None:
    off = RenderedState(state="state-driver", enabled=False)
    validator = RenderedState(state="state-operator-validation", enabled=True)
    status = status_with(
        rendered=(off, DCGM, validator),
        readiness={validator.state: (BROKEN,)},
        host_problems={"gpu-3": "too old", "gpu-7": "does not work"},
    )
    named = {held.name: [(node.node, node.message) for node in held.nodes] for held in status.states if held.nodes}
    assert named == {validator.state: [("gpu-3", "too old"), ("gpu-7", "does not work")]}
    assert status.state is State.NOT_READY


def test_a_stack_is_not_reported_as_ready_while_objects_are_to_be_written() -> None:
    assert maybe_status(converged=False) is None
    assert maybe_status(converged=False, gpu_nodes=0, readiness={}) is None
    assert status_with(converged=False, readiness={"state-driver": (BROKEN,)}).state is State.NOT_READY


def test_a_node_that_is_not_ready_is_named_in_its_state_with_the_reason() -> None:
    (state, *_) = status_with(readiness={"state-driver": (BROKEN,), "state-dcgm": (GOOD,)}).states
    assert (state.state, state.desired, state.ready) == (OperandState.NOT_READY, 3, 2)
    assert state.nodes == BROKEN.troubles
    assert state.message == "it runs on 2 of 3 nodes"


def test_the_most_serious_reason_comes_first() -> None:
    broken = {"state-driver": (BROKEN,), "state-dcgm": (GOOD,)}
    assert conditions(status_with(readiness=broken, unlabelled=["a"]))["Error"][1] == "LabellingNodes"
    assert (
        conditions(status_with(write_problems={"state-dcgm": "no"}, unlabelled=["a"]))["Error"][1] == "ReconcileFailed"
    )


def test_a_failed_state_says_why_and_names_no_nodes() -> None:
    (_, state, _) = status_with(write_problems={"state-dcgm": "forbidden " * 500}).states
    assert state.state is OperandState.FAILED
    assert state.message.startswith("forbidden")
    assert len(state.message) <= 1024


def test_a_node_is_named_once_in_a_state_and_at_most_twenty_are() -> None:
    many = tuple(NodeTrouble(node=f"n{number:02}", reason="x") for number in range(15))
    readiness = (
        Readiness(ready=False, troubles=many),
        Readiness(ready=False, troubles=(*many[:3], *(NodeTrouble(node=f"m{n:02}", reason="x") for n in range(15)))),
    )
    nodes = [held.node for held in status_with(readiness={"state-driver": readiness}).states[0].nodes]
    assert len(nodes) == len(set(nodes)) == 20


def test_unknown_fields_have_a_condition_of_their_own() -> None:
    status = status_with(unknown=("driver.warp", "holodeck"))
    assert status.state is State.READY
    assert conditions(status)["UnknownFields"][:2] == ("True", "Present")
    assert "driver.warp, holodeck" in conditions(status)["UnknownFields"][2]
    assert "UnknownFields" not in conditions(status_with())


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    held = status_with()
    later = PolicyStatusInput(
        generation=5,
        namespace="gpu",
        rendered=(DRIVER,),
        readiness={"state-driver": (GOOD,)},
        gpu_nodes=9,
        now=NOW + timedelta(hours=1),
    )
    again = status_of(held, later)
    assert again is not None
    assert {condition.last_transition_time for condition in again.conditions} == {NOW}
    assert {condition.observed_generation for condition in again.conditions} == {5}


def test_an_ignored_policy_names_the_active_one() -> None:
    status = ignored_status(StackStatus(), "older", "gpu", 2, NOW)
    assert (status.state, status.states) == (State.IGNORED, ())
    assert conditions(status)["Error"][:2] == ("True", "Ignored")
    assert "older" in conditions(status)["Error"][2]


THEIRS = Condition(type="Ready", status="True", reason="Reconciled", last_transition_time=NOW)


def test_while_nvidias_operator_is_active_only_one_condition_is_added_to_its_status() -> None:
    held = StackStatus(state=State.READY, namespace="theirs", conditions=(THEIRS,))
    holder = LeaseHolder(namespace="gpu-operator", holder="pod-1", until=NOW)
    added = other_operator_condition(held.conditions, holder, 1, NOW)
    status = with_condition(held, added)
    assert (status.state, status.namespace) == (State.READY, "theirs")
    assert status.conditions == (THEIRS, added)
    assert "pod-1" in added.message
    assert with_condition(StackStatus(), added).state is State.NOT_READY


def test_conditions_of_other_writers_do_not_make_a_status_differ() -> None:
    held = status_with()
    strange = Condition(type="Strange", status="True", reason="x", last_transition_time=NOW)
    replaced = StackStatus(
        state=held.state,
        namespace=held.namespace,
        observed_generation=held.observed_generation,
        states=held.states,
        conditions=(strange, *reversed(held.conditions)),
    )
    assert not status_differs(replaced, held)
    assert status_differs(status_with(unknown=("a",)), held)
    assert status_differs(status_with(gpu_nodes=4), held)


GONE = "node.kubernetes.io/unreachable:NoSchedule"


def tainted_readiness(tainted: dict[str, str], *names: str) -> dict[str, tuple[Readiness, ...]]:
    """Two ready states: pods of one of them tolerate the taints of the nodes `names`, no pods those of the others."""
    bare = Readiness(ready=True, coverage=NodeCoverage((), tainted))
    return {
        "state-driver": (bare,),
        "state-dcgm": (msgspec.structs.replace(bare, coverage=NodeCoverage(names, tainted)),),
    }


@pytest.mark.parametrize(
    ("tainted", "says"),
    [
        ({"gpu-2": GONE}, f"All states are ready on 2 nodes. Out of reach are 1: gpu-2 ({GONE})."),
        (
            {"gpu-2": GONE, "gpu-3": "team=ml:NoSchedule"},
            (
                f"All states are ready on 1 node. Out of reach are 2: gpu-2 ({GONE}), gpu-3 (team=ml:NoSchedule)."
                " Pods bear the taints that daemonsets.tolerations names."
            ),
        ),
    ],
)
def test_nodes_with_taints_that_pods_do_not_tolerate_are_named_in_a_ready_stack(
    tainted: dict[str, str], says: str
) -> None:
    status = status_with(readiness=tainted_readiness(tainted | {"gpu-1": "only for one"}, "gpu-1"))
    assert status.state is State.READY
    assert conditions(status)["Ready"] == ("True", "Reconciled", says)


def test_a_stack_whose_pods_tolerate_no_node_is_not_ready() -> None:
    status = status_with(readiness=tainted_readiness({f"gpu-{number}": GONE for number in range(4)}))
    assert status.state is State.NOT_READY
    kind, reason, message = conditions(status)["Error"]
    assert (kind, reason) == ("True", "OperandNotReady")
    assert message == f"no GPU node takes pods of the stack: {', '.join(f'gpu-{n} ({GONE})' for n in range(3))}, …."


def test_without_selected_nodes_nothing_is_out_of_reach() -> None:
    assert status_with(readiness=tainted_readiness({})).state is State.READY


def test_a_count_that_has_become_zero_is_removed() -> None:
    """What is 0 or empty is not encoded, and a merge patch leaves what it does not name."""
    held = {"state": "notReady", "upgrade": {"failed": 1, "total": 8}, "namespace": "a"}
    patch = replacement_patch(held, {"state": "ready", "upgrade": {"total": 8}, "states": [1]})
    assert patch == {"state": "ready", "upgrade": {"failed": None, "total": 8}, "namespace": None, "states": [1]}
