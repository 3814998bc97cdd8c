"""How long the steps of an upgrade may take, and what happens to a node that is lost meanwhile. Pure.

Time passes also while no operator is there to carry a step out. A node does not fail for that: if the step was not
carried out for most of its time, its time starts anew. An annotation counts how often, so that an operator that dies
again and again does not occupy the slot for ever.

A node that is lost may never come back, and what its step waits for cannot happen meanwhile, however long the policy
allows. So it gives up its slot after a while; when it is ready again, its upgrade is tried again.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import NodeAnnotation
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.operator.upgrade.actions import NodePatch, UpgradeAction, Wait, fail_upgrade, stamp
from gpu_control_plane.operator.upgrade.node_view import NodeView
from gpu_control_plane.settings import format_duration

MOST_RENEWALS: Final = 3
GONE_LAG_SECONDS: Final = 30.0
"""Between the end of a pod's grace period and the watch event of its deletion."""
_FAIR_SHARE: Final = 0.5
"""The share of its time that one process must have carried a step out for the step to fail."""


def renew_step(view: NodeView, limit: float, now: float) -> NodePatch | None:
    """Start the time of a step anew; None if it was carried out long enough, or was renewed often enough.

    This is written before any pod is asked to leave: a process that dies of asking does not renew for ever.
    """
    asked = view.asked_since
    if asked is not None and now - asked >= limit * _FAIR_SHARE:
        return None
    count = view.annotations.get(NodeAnnotation.RENEWALS, "")
    times = int(count) if count.isdecimal() else 0
    if times >= MOST_RENEWALS:
        return None
    return NodePatch(
        note="The time of this step begins anew: for most of it no operator was there",
        annotations={
            NodeAnnotation.STEP_SINCE: stamp(now if asked is None else asked),
            NodeAnnotation.RENEWALS: str(times + 1),
        },
    )


def are_leaving(view: NodeView, pods: Sequence[Pod]) -> bool:
    """Whether all of them are being deleted, or their eviction was accepted, by whatever process."""
    return all(pod.deleting or pod.metadata.uid in view.leaving for pod in pods)


def gone_by(view: NodeView, pods: Sequence[Pod], deadline: float, limit: float) -> float:
    """When the last of some leaving pods has to be gone, although the deadline of the step may be over.

    A pod that was evicted late, because of a budget or because no operator was there, has its own grace period for it,
    but no longer than the limit.
    """
    return max(_gone_by(view, pod, deadline, limit) for pod in pods)


def lost_node_action(view: NodeView, now: float) -> NodePatch | None:
    """Notes since when a node in progress has been lost, and lets its upgrade fail in the end; None if there is nothing
    to write."""
    if not view.occupies_slot:
        return None
    if view.ready:
        back = NodeAnnotation.LOST_SINCE in view.annotations
        return NodePatch(note="", annotations={NodeAnnotation.LOST_SINCE: None}) if back else None
    since = view.since(NodeAnnotation.LOST_SINCE)
    if since is None:
        return NodePatch(note="", annotations={NodeAnnotation.LOST_SINCE: stamp(now)})
    limit = view.limits.lost_node_timeout
    if now >= since + limit.total_seconds():
        return fail_upgrade(view, f"the node has not been ready for {format_duration(limit)}", now)
    return None


def limit_wait_by_loss(view: NodeView, action: UpgradeAction) -> UpgradeAction:
    """A lost node waits no longer than until its upgrade fails."""
    since = view.since(NodeAnnotation.LOST_SINCE)
    if since is None or view.ready or not view.occupies_slot or not isinstance(action, Wait):
        return action
    until = since + view.limits.lost_node_timeout.total_seconds()
    return msgspec.structs.replace(action, until=min(action.until, until) if action.until is not None else until)


def _gone_by(view: NodeView, pod: Pod, deadline: float, limit: float) -> float:
    asked, ends = view.leaving.get(pod.metadata.uid, deadline), pod.metadata.deletion_timestamp
    return min((ends.timestamp() if ends is not None else asked) + GONE_LAG_SECONDS, asked + limit)
