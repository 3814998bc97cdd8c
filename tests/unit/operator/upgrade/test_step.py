"""What comes next for a node: the transition table of NVIDIA's operator row by row, then where ours differs."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, PodLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Drain, PodDeletion, UpgradePolicy, WaitForCompletion
from gpu_control_plane.operator.upgrade.actions import NO_DRIVER, DeleteDriverPod, EvictPods, NodePatch, Wait
from gpu_control_plane.operator.upgrade.node_view import DriverPod, NodeView, Refusal, ValidatorPod
from gpu_control_plane.operator.upgrade.step import step, switch_off
from unit.operator.upgrade.builders import (
    CRASHING,
    CURRENT,
    NOW,
    ORPHAN,
    POLICY,
    SKIP,
    STALE,
    TRAINING,
    UNREADY,
    ago,
    cordoned,
    gpu_pod,
    view,
)

S = UpgradeState
REQUESTED: dict[str, str] = {NodeAnnotation.UPGRADE_REQUESTED: "true"}
SAFE_LOAD: dict[str, str] = {NodeAnnotation.SAFE_LOAD: "true"}
CORDONED_BEFORE: dict[str, str] = {NodeAnnotation.INITIALLY_UNSCHEDULABLE: "true"}
SAME_CONFIG = replace(STALE, digest="abc", wanted_digest="abc")
VALID = (ValidatorPod(name="validator"),)
INVALID = (ValidatorPod(name="validator", ready=False, trouble="cuda: PodInitializing"),)
BARE = gpu_pod("bare", owner=None)
PATIENT = UpgradePolicy(
    auto_upgrade=True, wait_for_completion=WaitForCompletion(pod_selector="app=train", timeout_seconds=60)
)
DRAINING = UpgradePolicy(auto_upgrade=True, drain=Drain(enable=True))


def slot_granted(*drivers: DriverPod, annotations: Mapping[str, str] | None = None) -> NodeView:
    return view(S.REQUIRED, *drivers, annotations=annotations, slot_granted=True)


@pytest.mark.parametrize(
    ("node", "policy", "expected"),
    [
        pytest.param(view(S.NONE, STALE), POLICY, S.REQUIRED, id="unknown: an old pod"),
        pytest.param(view(S.DONE, STALE), POLICY, S.REQUIRED, id="done: an old pod"),
        pytest.param(view(S.DONE, CURRENT, annotations=REQUESTED), POLICY, S.REQUIRED, id="done: requested"),
        pytest.param(view(S.DONE, CURRENT, annotations=SAFE_LOAD), POLICY, S.REQUIRED, id="done: safe load"),
        pytest.param(view(S.NONE, CURRENT), POLICY, S.DONE, id="unknown: otherwise"),
        pytest.param(view(S.NONE, ORPHAN), POLICY, S.REQUIRED, id="unknown: an orphan alone"),
        pytest.param(view(S.DONE, CURRENT), POLICY, None, id="done: otherwise"),
        pytest.param(view(S.REQUIRED, STALE, labels=SKIP, slot_granted=True), POLICY, None, id="required: skip"),
        pytest.param(view(S.REQUIRED, STALE), POLICY, None, id="required: no slot"),
        pytest.param(slot_granted(SAME_CONFIG), POLICY, S.POD_RESTART_REQUIRED, id="required: only a restart"),
        pytest.param(slot_granted(STALE), POLICY, S.CORDON_REQUIRED, id="required: another driver"),
        pytest.param(slot_granted(replace(SAME_CONFIG, orphan=True)), POLICY, S.CORDON_REQUIRED, id="required: orphan"),
        pytest.param(
            slot_granted(SAME_CONFIG, annotations=REQUESTED), POLICY, S.CORDON_REQUIRED, id="required: requested"
        ),
        pytest.param(
            slot_granted(SAME_CONFIG, annotations=SAFE_LOAD), POLICY, S.CORDON_REQUIRED, id="required: safe load"
        ),
        pytest.param(view(S.CORDON_REQUIRED, STALE), POLICY, S.WAIT_FOR_JOBS_REQUIRED, id="cordon"),
        pytest.param(
            cordoned(S.WAIT_FOR_JOBS_REQUIRED, STALE, pods=(TRAINING,)),
            POLICY,
            S.POD_DELETION_REQUIRED,
            id="jobs: no selector",
        ),
        pytest.param(
            cordoned(S.WAIT_FOR_JOBS_REQUIRED, STALE, pods=(TRAINING,), annotations=ago(NodeAnnotation.WAIT_START, 59)),
            PATIENT,
            None,
            id="jobs: running",
        ),
        pytest.param(
            cordoned(S.WAIT_FOR_JOBS_REQUIRED, STALE, pods=(TRAINING,), annotations=ago(NodeAnnotation.WAIT_START, 60)),
            PATIENT,
            S.POD_DELETION_REQUIRED,
            id="jobs: past the timeout",
        ),
        pytest.param(
            cordoned(S.WAIT_FOR_JOBS_REQUIRED, STALE, pods=(gpu_pod(labels={"app": "train"}, phase="Succeeded"),)),
            PATIENT,
            S.POD_DELETION_REQUIRED,
            id="jobs: none running",
        ),
        pytest.param(
            cordoned(S.POD_DELETION_REQUIRED, STALE, pods=(gpu_pod(resource=""),)),
            POLICY,
            S.POD_RESTART_REQUIRED,
            id="pods: none",
        ),
        pytest.param(cordoned(S.POD_DELETION_REQUIRED, STALE, pods=(BARE,)), POLICY, S.FAILED, id="pods: undeletable"),
        pytest.param(
            cordoned(S.POD_DELETION_REQUIRED, STALE, pods=(BARE,)),
            DRAINING,
            S.DRAIN_REQUIRED,
            id="pods: undeletable, drain",
        ),
        pytest.param(
            cordoned(
                S.POD_DELETION_REQUIRED,
                STALE,
                pods=(gpu_pod(),),
                asked_since=NOW - 300,
                annotations=ago(NodeAnnotation.STEP_SINCE, 300),
            ),
            POLICY,
            S.FAILED,
            id="pods: past the timeout",
        ),
        pytest.param(
            cordoned(
                S.POD_DELETION_REQUIRED,
                STALE,
                pods=(gpu_pod(),),
                asked_since=NOW - 300,
                annotations=ago(NodeAnnotation.STEP_SINCE, 300),
            ),
            DRAINING,
            S.DRAIN_REQUIRED,
            id="pods: past the timeout, drain",
        ),
        pytest.param(cordoned(S.DRAIN_REQUIRED, STALE), POLICY, S.POD_RESTART_REQUIRED, id="drain: off"),
        pytest.param(cordoned(S.DRAIN_REQUIRED, STALE), DRAINING, S.POD_RESTART_REQUIRED, id="drain: empty"),
        pytest.param(cordoned(S.DRAIN_REQUIRED, STALE, pods=(BARE,)), DRAINING, S.FAILED, id="drain: undeletable"),
        pytest.param(
            cordoned(
                S.DRAIN_REQUIRED,
                STALE,
                pods=(gpu_pod(),),
                asked_since=NOW - 300,
                annotations=ago(NodeAnnotation.STEP_SINCE, 300),
            ),
            DRAINING,
            S.FAILED,
            id="drain: past the timeout",
        ),
        pytest.param(cordoned(S.POD_RESTART_REQUIRED, CURRENT), POLICY, S.VALIDATION_REQUIRED, id="restart: ready"),
        pytest.param(cordoned(S.POD_RESTART_REQUIRED, UNREADY), POLICY, None, id="restart: not ready yet"),
        pytest.param(cordoned(S.POD_RESTART_REQUIRED, CRASHING), POLICY, S.FAILED, id="restart: crashes"),
        pytest.param(
            cordoned(S.POD_RESTART_REQUIRED, replace(CRASHING, restarts=10)),
            POLICY,
            None,
            id="restart: crashes a little",
        ),
        pytest.param(
            cordoned(
                S.VALIDATION_REQUIRED, CURRENT, validators=VALID, annotations=ago(NodeAnnotation.VALIDATION_START, 9)
            ),
            POLICY,
            S.UNCORDON_REQUIRED,
            id="validation: passed",
        ),
        pytest.param(
            cordoned(
                S.VALIDATION_REQUIRED,
                CURRENT,
                validators=VALID,
                annotations=ago(NodeAnnotation.VALIDATION_START, 9) | CORDONED_BEFORE,
            ),
            POLICY,
            S.DONE,
            id="validation: passed, cordoned before",
        ),
        pytest.param(
            cordoned(
                S.VALIDATION_REQUIRED,
                CURRENT,
                validators=INVALID,
                annotations=ago(NodeAnnotation.VALIDATION_START, 599),
            ),
            POLICY,
            None,
            id="validation: not yet",
        ),
        pytest.param(
            cordoned(
                S.VALIDATION_REQUIRED,
                CURRENT,
                validators=INVALID,
                annotations=ago(NodeAnnotation.VALIDATION_START, 600),
            ),
            POLICY,
            S.FAILED,
            id="validation: unready for too long",
        ),
        pytest.param(cordoned(S.UNCORDON_REQUIRED, CURRENT), POLICY, S.DONE, id="uncordon"),
        pytest.param(cordoned(S.FAILED, CURRENT, validators=VALID), POLICY, S.UNCORDON_REQUIRED, id="failed: mended"),
        pytest.param(
            cordoned(S.FAILED, CURRENT, validators=VALID, annotations=CORDONED_BEFORE),
            POLICY,
            S.DONE,
            id="failed: mended, cordoned before",
        ),
        pytest.param(
            cordoned(S.FAILED, STALE, validators=VALID, annotations={NodeAnnotation.FAILED_WITH: "r2"}),
            POLICY,
            None,
            id="failed: an old pod",
        ),
    ],
)
def test_states_follow_the_table(node: NodeView, policy: UpgradePolicy, expected: UpgradeState | None) -> None:
    found = step(node, policy, NOW)
    if expected is None:
        assert isinstance(found, Wait)
        return
    assert isinstance(found, NodePatch)
    assert found.state is expected


@pytest.mark.parametrize(
    ("node", "unschedulable"),
    [
        (slot_granted(STALE), None),
        (slot_granted(SAME_CONFIG), True),
        (view(S.CORDON_REQUIRED, STALE), True),
        (cordoned(S.UNCORDON_REQUIRED, CURRENT), False),
        (cordoned(S.UNCORDON_REQUIRED, CURRENT, annotations=CORDONED_BEFORE), None),
        (cordoned(S.POD_DELETION_REQUIRED, STALE, pods=(BARE,)), None),
    ],
)
def test_nodes_are_cordoned_and_uncordoned_with_the_states(node: NodeView, unschedulable: bool | None) -> None:
    found = step(node, POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.unschedulable is unschedulable


def test_whether_a_node_was_cordoned_is_noted_before_it_starts() -> None:
    found = step(cordoned(S.DONE, STALE), POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.annotations[NodeAnnotation.INITIALLY_UNSCHEDULABLE] == "true"


@pytest.mark.parametrize(
    ("unschedulable", "annotations", "noted"),
    [
        (True, {}, "true"),
        (False, CORDONED_BEFORE, None),
        (True, ago(NodeAnnotation.STARTED, 900), "untouched"),
        (True, CORDONED_BEFORE | ago(NodeAnnotation.STARTED, 900), "untouched"),
    ],
    ids=["cordoned while it waited", "uncordoned while it waited", "left cordoned by a failed try", "both"],
)
def test_a_persons_cordon_is_distinguished_from_ours(
    unschedulable: bool, annotations: Mapping[str, str], noted: str | None
) -> None:
    node = view(S.REQUIRED, STALE, slot_granted=True, unschedulable=unschedulable, annotations=annotations)
    found = step(node, POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.annotations.get(NodeAnnotation.INITIALLY_UNSCHEDULABLE, "untouched") == noted


def test_requests_are_removed_when_a_node_starts_or_is_skipped() -> None:
    for node in (
        slot_granted(CURRENT, annotations=REQUESTED),
        view(S.REQUIRED, STALE, labels=SKIP, annotations=REQUESTED),
    ):
        found = step(node, POLICY, NOW)
        assert isinstance(found, NodePatch)
        assert found.annotations[NodeAnnotation.UPGRADE_REQUESTED] is None


def test_pods_that_use_a_gpu_are_evicted_and_waited_for() -> None:
    pod = gpu_pod()
    node = cordoned(S.POD_DELETION_REQUIRED, STALE, pods=(pod, gpu_pod("web", resource="")))
    found = step(node, POLICY, NOW)
    assert isinstance(found, EvictPods)
    assert found.pods == (pod,)
    asked = replace(node, leaving={pod.metadata.uid: NOW})
    assert step(asked, POLICY, NOW) == Wait(reason="work/train-1 have to leave", until=NOW + 300)


def test_nothing_is_evicted_while_another_pod_may_not_be() -> None:
    found = step(cordoned(S.POD_DELETION_REQUIRED, STALE, pods=(gpu_pod(), BARE)), POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert "work/bare may not be evicted" in (found.annotations[NodeAnnotation.FAILURE] or "")


def test_a_refused_eviction_is_tried_again_until_the_time_is_over() -> None:
    pod = gpu_pod()
    refusal = Refusal(NOW + 5, "it would violate the disruption budget")
    node = cordoned(S.POD_DELETION_REQUIRED, STALE, pods=(pod,), refusals={pod.metadata.uid: refusal})
    waiting = step(node, POLICY, NOW)
    assert isinstance(waiting, Wait)
    assert waiting.until == NOW + 5
    assert isinstance(step(node, POLICY, NOW + 5), EvictPods)
    failed = step(replace(node, asked_since=NOW), POLICY, NOW + 300)
    assert isinstance(failed, NodePatch)
    assert "disruption budget" in (failed.annotations[NodeAnnotation.FAILURE] or "")


def test_a_node_that_a_person_uncordoned_is_cordoned_before_evictions() -> None:
    found = step(view(S.POD_DELETION_REQUIRED, STALE, pods=(gpu_pod(),)), POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.unschedulable is True


def test_a_policy_without_pod_deletion_means_its_defaults() -> None:
    node = cordoned(S.POD_DELETION_REQUIRED, STALE, pods=(gpu_pod(),))
    assert step(node, POLICY, NOW) == step(node, replace(POLICY, pod_deletion=PodDeletion()), NOW)


def test_a_drain_evicts_what_its_selector_matches_except_pods_with_the_skip_label() -> None:
    policy = replace(DRAINING, drain=Drain(enable=True, pod_selector="app=train"))
    keeper = gpu_pod("keeper", labels={"app": "train", PodLabel.DRAIN_SKIP: "true"})
    found = step(cordoned(S.DRAIN_REQUIRED, STALE, pods=(TRAINING, keeper, gpu_pod(resource=""))), policy, NOW)
    assert isinstance(found, EvictPods)
    assert found.pods == (TRAINING,)
    after = step(cordoned(S.DRAIN_REQUIRED, STALE, pods=(keeper,)), policy, NOW)
    assert isinstance(after, NodePatch)
    assert after.state is S.POD_RESTART_REQUIRED


@pytest.mark.parametrize("rules", [Drain(enable=True, pod_selector="app=train"), Drain(enable=False), None])
def test_a_driver_is_not_replaced_while_a_pod_that_no_drain_evicts_uses_it(rules: Drain | None) -> None:
    found = step(cordoned(S.DRAIN_REQUIRED, STALE, pods=(gpu_pod(),)), replace(POLICY, drain=rules), NOW)
    assert isinstance(found, NodePatch)
    assert found.state is S.FAILED


@pytest.mark.parametrize("pod", [STALE, ORPHAN])
def test_an_outdated_driver_pod_is_deleted_once(pod: DriverPod) -> None:
    found = step(cordoned(S.POD_RESTART_REQUIRED, pod), POLICY, NOW)
    assert isinstance(found, DeleteDriverPod)
    assert found.pod is pod
    leaving = step(cordoned(S.POD_RESTART_REQUIRED, replace(pod, leaving=True)), POLICY, NOW)
    assert isinstance(leaving, Wait)


def test_an_orphaned_driver_pod_is_not_deleted_while_it_has_no_successor() -> None:
    begun = step(view(S.REQUIRED, ORPHAN, slot_granted=True, wanted=""), POLICY, NOW)
    assert begun == Wait(reason="no DaemonSet owns its driver pod, and none would bring another one")
    node = cordoned(S.POD_RESTART_REQUIRED, ORPHAN, wanted="")
    assert isinstance(step(node, POLICY, NOW), Wait)
    failed = step(node, POLICY, NOW + 1800)
    assert isinstance(failed, NodePatch)
    assert (failed.state, failed.annotations[NodeAnnotation.FAILED_WITH]) == (S.FAILED, NO_DRIVER)
    assert isinstance(step(replace(node, wanted="r2"), POLICY, NOW), DeleteDriverPod)


def test_a_driver_pod_is_not_replaced_while_a_secret_that_the_new_one_needs_is_missing() -> None:
    secret = "operands/licence"
    missing = "the Secret operands/licence, without which no new driver would start, does not exist: create it"
    assert step(view(S.REQUIRED, STALE, slot_granted=True, missing_secret=secret), POLICY, NOW) == Wait(reason=missing)
    node = cordoned(S.POD_RESTART_REQUIRED, STALE, missing_secret=secret)
    waits = step(node, POLICY, NOW)
    assert isinstance(waits, Wait)
    assert waits.reason == missing
    failed = step(node, POLICY, NOW + 1800)
    assert isinstance(failed, NodePatch)
    assert missing in failed.note
    assert isinstance(step(replace(node, missing_secret=""), POLICY, NOW), DeleteDriverPod)


def test_a_driver_pod_of_unknown_revision_is_neither_replaced_nor_taken_for_the_new_one() -> None:
    """While a DaemonSet is orphaned its revisions may be gone before its pod has lost its owner."""
    unknown = replace(CURRENT, revision_known=False)
    waiting = step(cordoned(S.POD_RESTART_REQUIRED, unknown), POLICY, NOW)
    assert isinstance(waiting, Wait)
    assert waiting.reason == "the revision of the driver pod driver-new is not known"
    assert not view(S.DONE, unknown).wants_upgrade


def test_a_driver_that_waits_to_load_may_load_once_the_node_is_empty() -> None:
    node = cordoned(S.POD_RESTART_REQUIRED, UNREADY, annotations=SAFE_LOAD)
    found = step(node, POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.annotations == {NodeAnnotation.SAFE_LOAD: None}


@pytest.mark.parametrize("pods", [(), (UNREADY,), (replace(STALE, leaving=True),)], ids=["none", "unready", "leaving"])
def test_a_driver_pod_that_does_not_come_fails_after_half_an_hour(pods: tuple[DriverPod, ...]) -> None:
    node = cordoned(S.POD_RESTART_REQUIRED, *pods)
    assert step(node, POLICY, NOW + 1799) == step(node, POLICY, NOW)
    found = step(node, POLICY, NOW + 1800)
    assert isinstance(found, NodePatch)
    assert found.state is S.FAILED
    assert found.warning


def test_a_driver_that_is_published_during_the_step_has_its_own_half_hour_but_no_more() -> None:
    late = cordoned(S.POD_RESTART_REQUIRED, replace(UNREADY, created=NOW + 1500))
    assert step(late, POLICY, NOW + 1900) == Wait(reason="the driver pod driver-new is not ready", until=NOW + 3300)
    endless = cordoned(S.POD_RESTART_REQUIRED, replace(UNREADY, created=NOW + 3590))
    found = step(endless, POLICY, NOW + 3600)
    assert isinstance(found, NodePatch)
    assert found.state is S.FAILED


def test_a_node_that_nothing_validates_fails_after_ten_minutes() -> None:
    node = cordoned(S.VALIDATION_REQUIRED, CURRENT, annotations=ago(NodeAnnotation.VALIDATION_START, 0))
    assert isinstance(step(node, POLICY, NOW + 599), Wait)
    found = step(node, POLICY, NOW + 600)
    assert isinstance(found, NodePatch)
    assert found.state is S.FAILED


def test_a_ready_pod_alone_does_not_repair_a_node_that_failed_its_validation() -> None:
    assert isinstance(step(cordoned(S.FAILED, CURRENT, validators=INVALID), POLICY, NOW), Wait)


def test_a_newer_driver_during_validation_is_taken_at_once() -> None:
    found = step(cordoned(S.VALIDATION_REQUIRED, STALE, validators=VALID), POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.state is S.POD_RESTART_REQUIRED


@pytest.mark.parametrize("state", [S.CORDON_REQUIRED, S.WAIT_FOR_JOBS_REQUIRED])
@pytest.mark.parametrize(("annotations", "unschedulable"), [({}, False), (CORDONED_BEFORE, None)])
def test_the_skip_label_counts_as_long_as_no_pod_was_evicted(
    state: UpgradeState, annotations: Mapping[str, str], unschedulable: bool | None
) -> None:
    found = step(cordoned(state, STALE, labels=SKIP, annotations=annotations), POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert (found.state, found.unschedulable) == (S.REQUIRED, unschedulable)


@pytest.mark.parametrize("state", [S.POD_DELETION_REQUIRED, S.DRAIN_REQUIRED, S.POD_RESTART_REQUIRED])
def test_the_skip_label_comes_too_late_once_pods_may_have_been_evicted(state: UpgradeState) -> None:
    node = cordoned(state, STALE, pods=(gpu_pod(),))
    labels = {**node.labels, str(NodeLabel.UPGRADE_SKIP): "true"}
    assert step(replace(node, labels=labels), DRAINING, NOW) == step(node, DRAINING, NOW)


def test_a_node_without_a_driver_pod_or_not_ready_takes_no_slot() -> None:
    assert step(slot_granted(), POLICY, NOW) == Wait(reason="no driver pod is on the node")
    assert step(replace(slot_granted(STALE), ready=False), POLICY, NOW) == Wait(reason="the node is not ready")
    assert step(view(S.NONE), POLICY, NOW) == Wait(reason="no driver pod is on the node")


@pytest.mark.parametrize(
    ("annotations", "unschedulable", "expected"),
    [({}, False, S.DONE), ({}, True, S.DONE), (ago(NodeAnnotation.STARTED, 900), True, S.UNCORDON_REQUIRED)],
    ids=["in service", "cordoned by a person", "cordoned by a failed try"],
)
def test_a_node_whose_driver_became_right_by_itself_needs_no_slot(
    annotations: Mapping[str, str], unschedulable: bool, expected: UpgradeState
) -> None:
    found = step(view(S.REQUIRED, CURRENT, annotations=annotations, unschedulable=unschedulable), POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.state is expected
    assert found.unschedulable is None


def test_the_time_an_upgrade_took_stays_on_the_node() -> None:
    node = cordoned(S.UNCORDON_REQUIRED, CURRENT, annotations=ago(NodeAnnotation.STARTED, 240))
    found = step(node, POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.annotations[NodeAnnotation.STARTED] == str(int(NOW - 240))
    assert found.annotations[NodeAnnotation.STEP_SINCE] == str(int(NOW))


@pytest.mark.parametrize("state", [S.POD_DELETION_REQUIRED, S.POD_RESTART_REQUIRED, S.VALIDATION_REQUIRED])
def test_an_upgrade_of_nvidias_operator_gets_its_times_first(state: UpgradeState) -> None:
    node = cordoned(state, UNREADY, pods=(gpu_pod(),))
    node = replace(node, annotations={})
    found = step(node, POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.state is None
    assert str(int(NOW)) in found.annotations.values()


@pytest.mark.parametrize("driver", [STALE, CURRENT], ids=["old driver", "new driver"])
def test_a_failed_node_without_its_label_is_tried_again_and_stays_cordoned(driver: DriverPod) -> None:
    why = {NodeAnnotation.FAILURE: "why", NodeAnnotation.FAILED_WITH: "r2"} | ago(NodeAnnotation.STARTED, 900)
    node = cordoned(S.NONE, driver, annotations=why, validators=VALID)
    found = step(node, POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.state is S.REQUIRED
    assert NodeAnnotation.INITIALLY_UNSCHEDULABLE not in found.annotations
    assert NodeAnnotation.STARTED not in found.annotations
    assert found.annotations[NodeAnnotation.FAILURE] is None


def test_an_unknown_state_is_left_alone() -> None:
    assert isinstance(step(view(UpgradeState("upgrade-tomorrow"), STALE), POLICY, NOW), Wait)


@pytest.mark.parametrize(
    ("node", "unschedulable"),
    [
        (cordoned(S.POD_RESTART_REQUIRED, STALE), False),
        (cordoned(S.FAILED, STALE), False),
        (cordoned(S.POD_RESTART_REQUIRED, STALE, annotations=CORDONED_BEFORE), None),
        (cordoned(S.REQUIRED, STALE, annotations=ago(NodeAnnotation.STARTED, 9)), False),
        (cordoned(S.REQUIRED, STALE), None),
        (cordoned(S.DONE, CURRENT), None),
    ],
)
def test_switching_off_removes_annotations_and_our_cordon(node: NodeView, unschedulable: bool | None) -> None:
    change = switch_off(node)
    assert change is not None
    assert change.unschedulable is unschedulable
    assert change.labels[NodeLabel.UPGRADE_STATE] is None
    assert all(value is None for value in change.annotations.values())


def test_switching_off_a_node_without_an_upgrade_writes_nothing() -> None:
    assert switch_off(view(S.NONE, CURRENT, unschedulable=True, annotations=REQUESTED)) is None


def test_a_patch_holds_only_what_differs() -> None:
    node = cordoned(S.UNCORDON_REQUIRED, CURRENT, labels={"zone": "a"})
    found = step(node, POLICY, NOW)
    assert isinstance(found, NodePatch)
    assert found.body(node) == {
        "metadata": {
            "labels": {str(NodeLabel.UPGRADE_STATE): "upgrade-done"},
            "annotations": {str(NodeAnnotation.STEP_SINCE): None},
        },
        "spec": {"unschedulable": None},
    }
