"""The next action in the upgrade of one node. Pure.

States, labels and annotations are NVIDIA's; docs/adr/0008-driver-upgrades.md says where the transitions differ. The
caller repeats `step` until it is a `Wait`, so a node passes as many states as it can at once.
"""

from collections.abc import Callable, Mapping
from typing import Final

from gpu_control_plane.api.nvidia.names import TRUE, NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.operator.upgrade.actions import (
    NODE_LOST,
    NodePatch,
    UpgradeAction,
    Wait,
    enter_state,
    stamp,
    unpause_agent,
)
from gpu_control_plane.operator.upgrade.deadlines import limit_wait_by_loss, lost_node_action
from gpu_control_plane.operator.upgrade.driver_restart import (
    NO_SUCCESSOR,
    begin_restart,
    missing_secret,
    restart,
    validate,
    validation_problem,
)
from gpu_control_plane.operator.upgrade.eviction import delete_pods, drain, wait_for_jobs
from gpu_control_plane.operator.upgrade.node_view import NodeView

UPGRADE_ANNOTATIONS: Final = (
    NodeAnnotation.INITIALLY_UNSCHEDULABLE,
    NodeAnnotation.WAIT_START,
    NodeAnnotation.VALIDATION_START,
    NodeAnnotation.STEP_SINCE,
    NodeAnnotation.STARTED,
    NodeAnnotation.FAILURE,
    NodeAnnotation.FAILED_WITH,
    NodeAnnotation.LOST_SINCE,
    NodeAnnotation.RENEWALS,
)
"""Annotations that are removed with the upgrade."""


def step(view: NodeView, policy: UpgradePolicy, now: float) -> UpgradeAction:
    """The next action for this node."""
    handle = _HANDLERS.get(view.state)
    if handle is None:
        return Wait(reason=f'the state "{view.state}" is not known; remove the label to start again')
    return lost_node_action(view, now) or limit_wait_by_loss(view, handle(view, policy, now))


def switch_off(view: NodeView) -> NodePatch | None:
    """Undo the upgrade of a node on which upgrades are off; None when there is nothing to undo."""
    cordoned_by_us = not view.initially_unschedulable and (
        view.in_progress or view.state is UpgradeState.FAILED or _waits_for_retry(view)
    )
    action = NodePatch(
        note="Upgrades of the driver are off: what was known of one is forgotten",
        labels={NodeLabel.UPGRADE_STATE: None, **unpause_agent(view)},
        annotations=dict.fromkeys(UPGRADE_ANNOTATIONS),
        unschedulable=False if cordoned_by_us else None,
    )
    return action if action.body(view) else None


def _detect(view: NodeView, _policy: UpgradePolicy, now: float) -> UpgradeAction:
    """The node has no state yet, or its driver was up to date."""
    if not view.drivers:
        return Wait(reason="no driver pod is on the node")
    if view.state is UpgradeState.NONE and NodeAnnotation.FAILURE in view.annotations:
        # Only a failed node has this annotation. The upgrade has cordoned it, unless another annotation says otherwise.
        return enter_state(
            UpgradeState.REQUIRED,
            "The upgrade is to be tried again: its label is gone",
            now,
            annotations={NodeAnnotation.FAILURE: None, NodeAnnotation.FAILED_WITH: None},
        )
    if view.wants_upgrade:
        return enter_state(
            UpgradeState.REQUIRED,
            f"The driver is to be upgraded: {_cause(view)}",
            now,
            annotations={
                NodeAnnotation.INITIALLY_UNSCHEDULABLE: TRUE if view.unschedulable else None,
                NodeAnnotation.STARTED: None,
                NodeAnnotation.FAILURE: None,
                NodeAnnotation.FAILED_WITH: None,
            },
        )
    if view.state is UpgradeState.NONE:
        return NodePatch(
            note="",
            labels={NodeLabel.UPGRADE_STATE: UpgradeState.DONE.value},
            annotations=dict.fromkeys(UPGRADE_ANNOTATIONS),
        )
    return Wait(reason="the driver is as it should be")


def _await_slot(view: NodeView, _policy: UpgradePolicy, now: float) -> UpgradeAction:
    """The node waits for a slot."""
    if view.skipped and view.requested:
        return NodePatch(
            note=f"A request for an upgrade was dropped: the node has the label {NodeLabel.UPGRADE_SKIP}",
            annotations={NodeAnnotation.UPGRADE_REQUESTED: None},
        )
    if view.up_to_date and not view.wants_upgrade and not view.skipped:
        return _finish(view, "The driver is as it should be without our doing", now)
    why_not = _why_not_started(view)
    return _start(view, now) if why_not is None else Wait(reason=why_not)


def _why_not_started(view: NodeView) -> str | None:
    if view.skipped:
        return f"the node is to be left alone (label {NodeLabel.UPGRADE_SKIP})"
    if not view.drivers:
        return "no driver pod is on the node"
    if not view.ready:
        return "the node is not ready"
    if view.without_successor:
        return NO_SUCCESSOR
    if view.missing_secret:
        return missing_secret(view)
    return None if view.slot_granted else "it waits for a slot"


def _start(view: NodeView, now: float) -> NodePatch:
    annotations = {
        NodeAnnotation.STARTED: stamp(now),
        NodeAnnotation.FAILURE: None,
        NodeAnnotation.WAIT_START: None,
        NodeAnnotation.VALIDATION_START: None,
        NodeAnnotation.FAILED_WITH: None,
        **_initial_state(view),
    }
    if all(pod.only_restarts for pod in view.drivers) and not view.requested and not view.safe_load:
        return begin_restart(
            view, "The driver pod is replaced; the driver stays the same", now, annotations, unschedulable=True
        )
    return enter_state(
        UpgradeState.CORDON_REQUIRED,
        "The upgrade of the driver begins",
        now,
        annotations={NodeAnnotation.UPGRADE_REQUESTED: None, **annotations},
    )


def _cordon(view: NodeView, _policy: UpgradePolicy, now: float) -> UpgradeAction:
    if view.skipped:
        return _postpone(view, now)
    return enter_state(UpgradeState.WAIT_FOR_JOBS_REQUIRED, "No new pods come to the node", now, unschedulable=True)


def _wait_for_jobs(view: NodeView, policy: UpgradePolicy, now: float) -> UpgradeAction:
    return _postpone(view, now) if view.skipped else wait_for_jobs(view, policy, now)


def _uncordon(view: NodeView, _policy: UpgradePolicy, now: float) -> UpgradeAction:
    return _done(view, "The driver is upgraded", now, uncordon=not view.initially_unschedulable)


def _recover(view: NodeView, _policy: UpgradePolicy, now: float) -> UpgradeAction:
    """The upgrade failed; since then the driver may have become ready, or another driver may have been published."""
    if not view.up_to_date:
        why = view.annotations.get(NodeAnnotation.FAILURE, "the upgrade of the driver failed")
        return _retry(view, now) or Wait(reason=why)
    missing = validation_problem(view)
    if missing is not None:
        return Wait(reason=missing)
    return _finish(view, "The driver works after all", now)


def _retry(view: NodeView, now: float) -> NodePatch | None:
    """Try again once with each driver, and when a lost node is back: the node waits for a slot again; None if it stays
    failed.

    Which driver a node failed with under NVIDIA's operator is not known. It is assumed to be the one that is wanted
    now.
    """
    failed_with = view.annotations.get(NodeAnnotation.FAILED_WITH)
    if view.skipped or (failed_with != NODE_LOST and view.wanted in ("", failed_with)):
        return None
    if failed_with is None:
        return NodePatch(note="", annotations={NodeAnnotation.FAILED_WITH: view.wanted})
    if not view.ready:
        return None
    why = "the node is back" if failed_with == NODE_LOST else "there is another driver"
    return enter_state(
        UpgradeState.REQUIRED,
        f"The upgrade is to be tried again: {why}",
        now,
        annotations={NodeAnnotation.FAILURE: None, NodeAnnotation.FAILED_WITH: None},
    )


def _validate(view: NodeView, _policy: UpgradePolicy, now: float) -> UpgradeAction:
    if any(pod.outdated for pod in view.drivers):
        return begin_restart(view, "Yet another driver is wanted", now, {NodeAnnotation.VALIDATION_START: None})
    return validate(view, now) or _finish(view, "The new driver works", now)


def _finish(view: NodeView, note: str, now: float) -> NodePatch:
    """Go on to the end. A node that was cordoned before the upgrade stays cordoned."""
    if view.initially_unschedulable or (view.state is UpgradeState.REQUIRED and not _waits_for_retry(view)):
        return _done(view, note, now, uncordon=False)
    return enter_state(UpgradeState.UNCORDON_REQUIRED, note, now)


def _done(view: NodeView, note: str, now: float, *, uncordon: bool) -> NodePatch:
    """The duration stays readable: from `STARTED` to `STEP_SINCE`."""
    annotations: dict[str, str | None] = dict.fromkeys(UPGRADE_ANNOTATIONS)
    if started := view.annotations.get(NodeAnnotation.STARTED):
        annotations |= {NodeAnnotation.STARTED: started, NodeAnnotation.STEP_SINCE: stamp(now)}
    return NodePatch(
        note=note,
        labels={NodeLabel.UPGRADE_STATE: UpgradeState.DONE.value, **unpause_agent(view)},
        annotations=annotations,
        unschedulable=False if uncordon else None,
    )


def _postpone(view: NodeView, now: float) -> NodePatch:
    """The node got the skip label before any pod was evicted: it waits again, uncordoned if the upgrade cordoned it."""
    return enter_state(
        UpgradeState.REQUIRED,
        f"The upgrade of the driver is put off: the node has the label {NodeLabel.UPGRADE_SKIP}",
        now,
        annotations={NodeAnnotation.STARTED: None, NodeAnnotation.WAIT_START: None, NodeAnnotation.LOST_SINCE: None},
        unschedulable=None if view.initially_unschedulable else False,
    )


def _waits_for_retry(view: NodeView) -> bool:
    """Whether the node waits for another try: then a cordon may be that of the first try."""
    return view.state is UpgradeState.REQUIRED and NodeAnnotation.STARTED in view.annotations


def _initial_state(view: NodeView) -> Mapping[str, str | None]:
    """A person may have cordoned or uncordoned the node while it waited; a cordon of the first try does not count."""
    if not view.unschedulable:
        return {NodeAnnotation.INITIALLY_UNSCHEDULABLE: None}
    if NodeAnnotation.STEP_SINCE in view.annotations and not _waits_for_retry(view):
        return {NodeAnnotation.INITIALLY_UNSCHEDULABLE: TRUE}
    return {}


def _cause(view: NodeView) -> str:
    if view.safe_load:
        return "a new driver waits until it may load"
    if view.requested:
        return "it was requested"
    return (
        "no DaemonSet owns its driver pod"
        if any(pod.orphan for pod in view.drivers)
        else "its driver pod is not the newest"
    )


_HANDLERS: Final[Mapping[UpgradeState, Callable[[NodeView, UpgradePolicy, float], UpgradeAction]]] = {
    UpgradeState.NONE: _detect,
    UpgradeState.DONE: _detect,
    UpgradeState.REQUIRED: _await_slot,
    UpgradeState.CORDON_REQUIRED: _cordon,
    UpgradeState.WAIT_FOR_JOBS_REQUIRED: _wait_for_jobs,
    UpgradeState.POD_DELETION_REQUIRED: delete_pods,
    UpgradeState.DRAIN_REQUIRED: drain,
    UpgradeState.POD_RESTART_REQUIRED: lambda view, _policy, now: restart(view, now),
    UpgradeState.VALIDATION_REQUIRED: _validate,
    UpgradeState.UNCORDON_REQUIRED: _uncordon,
    UpgradeState.FAILED: _recover,
}
