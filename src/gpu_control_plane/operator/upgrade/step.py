"""What comes next for one node. Pure.

The states, labels and annotations are NVIDIA's; docs/adr/0008-driver-upgrades.md says where the way through them
differs. The caller repeats `step` until it is a `Wait`, so a node passes as many states as it can at once.
"""

from collections.abc import Callable, Mapping
from typing import Final

from gpu_control_plane.api.nvidia.names import TRUE, NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.operator.upgrade.actions import Change, Step, Wait, enter, stamp, unpaused
from gpu_control_plane.operator.upgrade.driver_restart import NO_SUCCESSOR, begin_restart, restart, validate
from gpu_control_plane.operator.upgrade.eviction import delete_pods, drain, wait_for_jobs
from gpu_control_plane.operator.upgrade.losing import lost, no_longer_than_lost
from gpu_control_plane.operator.upgrade.node_view import NodeView
from gpu_control_plane.operator.upgrade.notes import LOST
from gpu_control_plane.operator.upgrade.validation import validated

OURS: Final = (
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
"""Annotations that mean nothing without an upgrade."""


def step(view: NodeView, policy: UpgradePolicy, now: float) -> Step:
    """The next write for this node, or what it waits for."""
    handle = _HANDLERS.get(view.state)
    if handle is None:
        return Wait(reason=f'nobody here knows the state "{view.state}"; remove the label to begin anew')
    return lost(view, now) or no_longer_than_lost(view, handle(view, policy, now))


def switch_off(view: NodeView) -> Change | None:
    """Forget the upgrade of a node on which upgrades are off; None when there is nothing to forget."""
    cordoned_by_us = not view.initially_unschedulable and (
        view.in_progress or view.state is UpgradeState.FAILED or _under_way_before(view)
    )
    change = Change(
        note="Upgrades of the driver are off: what was known of one is forgotten",
        labels={NodeLabel.UPGRADE_STATE: None, **unpaused(view)},
        annotations=dict.fromkeys(OURS),
        unschedulable=False if cordoned_by_us else None,
    )
    return change if change.patch(view) else None


def _look(view: NodeView, _policy: UpgradePolicy, now: float) -> Step:
    """Nobody has looked yet, or the driver was as it should be."""
    if not view.drivers:
        return Wait(reason="no driver pod is on the node")
    if view.state is UpgradeState.NONE and NodeAnnotation.FAILURE in view.annotations:
        # Only a failed node says why. It is as we left it: the cordon is ours unless another annotation says otherwise.
        return enter(
            UpgradeState.REQUIRED,
            "The upgrade is to be tried again: its label is gone",
            now,
            annotations={NodeAnnotation.FAILURE: None, NodeAnnotation.FAILED_WITH: None},
        )
    if view.wants_upgrade:
        return enter(
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
        return Change(
            note="",
            labels={NodeLabel.UPGRADE_STATE: UpgradeState.DONE.value},
            annotations=dict.fromkeys(OURS),
        )
    return Wait(reason="the driver is as it should be")


def _await_turn(view: NodeView, _policy: UpgradePolicy, now: float) -> Step:
    """It waits for its turn."""
    if view.skipped and view.requested:
        return Change(
            note=f"A request for an upgrade was dropped: the node has the label {NodeLabel.UPGRADE_SKIP}",
            annotations={NodeAnnotation.UPGRADE_REQUESTED: None},
        )
    if view.settled and not view.wants_upgrade and not view.skipped:
        return _finish(view, "The driver is as it should be without our doing", now)
    hindrance = _hindrance(view)
    return _begin(view, now) if hindrance is None else Wait(reason=hindrance)


def _hindrance(view: NodeView) -> str | None:
    if view.skipped:
        return f"the node is to be left alone (label {NodeLabel.UPGRADE_SKIP})"
    if not view.drivers:
        return "no driver pod is on the node"
    if not view.ready:
        return "the node is not ready"
    if view.without_successor:
        return NO_SUCCESSOR
    return None if view.granted else "it waits for its turn"


def _begin(view: NodeView, now: float) -> Change:
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
    return enter(
        UpgradeState.CORDON_REQUIRED,
        "The upgrade of the driver begins",
        now,
        annotations={NodeAnnotation.UPGRADE_REQUESTED: None, **annotations},
    )


def _cordon(view: NodeView, _policy: UpgradePolicy, now: float) -> Step:
    if view.skipped:
        return _step_back(view, now)
    return enter(UpgradeState.WAIT_FOR_JOBS_REQUIRED, "No new pods come to the node", now, unschedulable=True)


def _wait_for_jobs(view: NodeView, policy: UpgradePolicy, now: float) -> Step:
    return _step_back(view, now) if view.skipped else wait_for_jobs(view, policy, now)


def _uncordon(view: NodeView, _policy: UpgradePolicy, now: float) -> Step:
    return _done(view, "The driver is upgraded", now, uncordon=not view.initially_unschedulable)


def _recover(view: NodeView, _policy: UpgradePolicy, now: float) -> Step:
    """It failed; a person may have put it right since, or have published another driver."""
    if not view.settled:
        why = view.annotations.get(NodeAnnotation.FAILURE, "the upgrade of the driver failed")
        return _try_again(view, now) or Wait(reason=why)
    verdict = validated(view)
    if verdict is not None:
        return Wait(reason=verdict)
    return _finish(view, "The driver works after all", now)


def _try_again(view: NodeView, now: float) -> Change | None:
    """Once with each driver, and when a lost node is back: it waits for a turn as we left it; None if it stays failed.

    What a node failed with under another operator is not known. It is taken to be the driver that is wanted now.
    """
    failed_with = view.annotations.get(NodeAnnotation.FAILED_WITH)
    if view.skipped or (failed_with != LOST and view.wanted in ("", failed_with)):
        return None
    if failed_with is None:
        return Change(note="", annotations={NodeAnnotation.FAILED_WITH: view.wanted})
    if not view.ready:
        return None
    return enter(
        UpgradeState.REQUIRED,
        f"The upgrade is to be tried again: {'the node is back' if failed_with == LOST else 'there is another driver'}",
        now,
        annotations={NodeAnnotation.FAILURE: None, NodeAnnotation.FAILED_WITH: None},
    )


def _validate(view: NodeView, _policy: UpgradePolicy, now: float) -> Step:
    if any(pod.outdated for pod in view.drivers):
        return begin_restart(view, "Yet another driver is wanted", now, {NodeAnnotation.VALIDATION_START: None})
    return validate(view, now) or _finish(view, "The new driver works", now)


def _finish(view: NodeView, note: str, now: float) -> Change:
    """On to the end; who found the node cordoned leaves it so."""
    if view.initially_unschedulable or (view.state is UpgradeState.REQUIRED and not _under_way_before(view)):
        return _done(view, note, now, uncordon=False)
    return enter(UpgradeState.UNCORDON_REQUIRED, note, now)


def _done(view: NodeView, note: str, now: float, *, uncordon: bool) -> Change:
    """How long it took stays readable: from `STARTED` to `STEP_SINCE`."""
    annotations: dict[str, str | None] = dict.fromkeys(OURS)
    if started := view.annotations.get(NodeAnnotation.STARTED):
        annotations |= {NodeAnnotation.STARTED: started, NodeAnnotation.STEP_SINCE: stamp(now)}
    return Change(
        note=note,
        labels={NodeLabel.UPGRADE_STATE: UpgradeState.DONE.value, **unpaused(view)},
        annotations=annotations,
        unschedulable=False if uncordon else None,
    )


def _step_back(view: NodeView, now: float) -> Change:
    """A person wants the node left alone, and no pod was touched yet: it waits again, as it was before."""
    return enter(
        UpgradeState.REQUIRED,
        f"The upgrade of the driver is put off: the node has the label {NodeLabel.UPGRADE_SKIP}",
        now,
        annotations={NodeAnnotation.STARTED: None, NodeAnnotation.WAIT_START: None, NodeAnnotation.LOST_SINCE: None},
        unschedulable=None if view.initially_unschedulable else False,
    )


def _under_way_before(view: NodeView) -> bool:
    """Whether the node waits for another try: it is as we left it, perhaps cordoned."""
    return view.state is UpgradeState.REQUIRED and NodeAnnotation.STARTED in view.annotations


def _initial_state(view: NodeView) -> Mapping[str, str | None]:
    """A person may have cordoned or uncordoned the node while it waited; a node we left cordoned is none of that."""
    if not view.unschedulable:
        return {NodeAnnotation.INITIALLY_UNSCHEDULABLE: None}
    if NodeAnnotation.STEP_SINCE in view.annotations and not _under_way_before(view):
        return {NodeAnnotation.INITIALLY_UNSCHEDULABLE: TRUE}
    return {}


def _cause(view: NodeView) -> str:
    if view.safe_load:
        return "a new driver waits until it may load"
    if view.requested:
        return "somebody asked for it"
    return (
        "its driver pod is nobody's" if any(pod.orphan for pod in view.drivers) else "its driver pod is not the newest"
    )


_HANDLERS: Final[Mapping[UpgradeState, Callable[[NodeView, UpgradePolicy, float], Step]]] = {
    UpgradeState.NONE: _look,
    UpgradeState.DONE: _look,
    UpgradeState.REQUIRED: _await_turn,
    UpgradeState.CORDON_REQUIRED: _cordon,
    UpgradeState.WAIT_FOR_JOBS_REQUIRED: _wait_for_jobs,
    UpgradeState.POD_DELETION_REQUIRED: delete_pods,
    UpgradeState.DRAIN_REQUIRED: drain,
    UpgradeState.POD_RESTART_REQUIRED: lambda view, _policy, now: restart(view, now),
    UpgradeState.VALIDATION_REQUIRED: _validate,
    UpgradeState.UNCORDON_REQUIRED: _uncordon,
    UpgradeState.FAILED: _recover,
}
