"""Who has how long. Pure.

Time goes on while no operator is there to do what a step asks for. No node fails for that: a step that nobody carried
out for most of its time gets its time anew. How often is noted on the node, so that an operator that dies again and
again does not keep the others waiting for ever.
"""

from collections.abc import Sequence
from typing import Final

from gpu_control_plane.api.nvidia.names import NodeAnnotation
from gpu_control_plane.operator.upgrade.actions import Change, stamp
from gpu_control_plane.operator.upgrade.node_view import NodeView
from gpu_control_plane.operator.views import Pod

MOST_RENEWALS: Final = 3
LAG: Final = 30.0
"""Seconds between the end of a pod's own grace period and the news that it is gone."""
_FAIR: Final = 0.5
"""The part of its time that a step has to be carried out by one process."""


def renewed(view: NodeView, limit: float, now: float) -> Change | None:
    """The time of a step anew; None if it had a fair one, or was renewed often enough.

    It is written before anybody is asked: a process that dies of asking does not ask for ever.
    """
    asked = view.asked_since
    if asked is not None and now - asked >= limit * _FAIR:
        return None
    count = view.annotations.get(NodeAnnotation.RENEWALS, "")
    times = int(count) if count.isdecimal() else 0
    if times >= MOST_RENEWALS:
        return None
    return Change(
        note="The time of this step begins anew: for most of it no operator was there",
        annotations={
            NodeAnnotation.STEP_SINCE: stamp(now if asked is None else asked),
            NodeAnnotation.RENEWALS: str(times + 1),
        },
    )


def are_leaving(view: NodeView, pods: Sequence[Pod]) -> bool:
    """Whether all of them have been asked to leave, by whatever process, and go."""
    return all(pod.deleting or pod.metadata.uid in view.leaving for pod in pods)


def gone_by(view: NodeView, pods: Sequence[Pod], deadline: float, limit: float) -> float:
    """When the last of some pods that are leaving has to be gone, although the deadline may be over.

    A pod that was asked late, since a budget or an operator's absence was in the way, has its own grace period for it,
    but no longer than the limit.
    """
    return max(_gone_by(view, pod, deadline, limit) for pod in pods)


def _gone_by(view: NodeView, pod: Pod, deadline: float, limit: float) -> float:
    asked, ends = view.leaving.get(pod.metadata.uid, deadline), pod.metadata.deletion_timestamp
    return min((ends.timestamp() if ends is not None else asked) + LAG, asked + limit)
