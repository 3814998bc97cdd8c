"""What becomes of a node that is lost in the middle of its upgrade. Pure.

Nobody knows whether it comes back, and whatever it waits for cannot happen meanwhile, however long a policy allows. So
it gives up its turn after a while; when it is ready again, it is tried again.
"""

from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import NodeAnnotation
from gpu_control_plane.operator.upgrade.actions import Change, Step, Wait, fail, stamp
from gpu_control_plane.operator.upgrade.node_view import NodeView

LOST_LIMIT: Final = 900.0
"""Seconds a node may be away: large machines take ten minutes to boot."""


def lost(view: NodeView, now: float) -> Change | None:
    """What a node under way has to say of its being away; None if nothing."""
    if not view.holds_turn:
        return None
    if view.ready:
        back = NodeAnnotation.LOST_SINCE in view.annotations
        return Change(note="", annotations={NodeAnnotation.LOST_SINCE: None}) if back else None
    since = view.since(NodeAnnotation.LOST_SINCE)
    if since is None:
        return Change(note="", annotations={NodeAnnotation.LOST_SINCE: stamp(now)})
    if now >= since + LOST_LIMIT:
        return fail(view, f"the node has not been ready for {LOST_LIMIT / 60:.0f} min", now)
    return None


def no_longer_than_lost(view: NodeView, found: Step) -> Step:
    """A wait ends when the node is given up."""
    since = view.since(NodeAnnotation.LOST_SINCE)
    if since is None or view.ready or not view.holds_turn or not isinstance(found, Wait):
        return found
    until = min(found.until, since + LOST_LIMIT) if found.until is not None else since + LOST_LIMIT
    return msgspec.structs.replace(found, until=until)
