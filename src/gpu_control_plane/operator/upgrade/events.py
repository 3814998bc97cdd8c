"""What people are told of an upgrade, on the Node."""

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import StackEvent
from gpu_control_plane.kube.events import EventRecorder
from gpu_control_plane.operator.upgrade.actions import Change, Evict, Restart


def tell(events: EventRecorder, node: Node, done: Change | Evict | Restart) -> None:
    """What has just been done to the node, if it is worth knowing."""
    if not done.note:
        return
    if isinstance(done, Evict) or not done.warning:
        events.normal(node, StackEvent.DRIVER_UPGRADE, done.note, action="Upgrade")
    else:
        events.warning(node, StackEvent.DRIVER_UPGRADE, done.note, action="Upgrade")


def tell_refused(events: EventRecorder, node: Node, pod: str, why: str) -> None:
    events.warning(node, StackEvent.DRIVER_UPGRADE, f"{pod} was not evicted: {why}. It is tried again", action="Evict")
