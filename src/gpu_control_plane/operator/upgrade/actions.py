"""The actions of an upgrade: a write, or a wait. Also the values that its labels and annotations get."""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.operator.upgrade.node_view import DriverPod, NodeView

PAUSED: Final = "paused-for-driver-upgrade"
"""Value of the label that makes our agent release the driver."""
NO_DRIVER: Final = "no-driver"
"""Value of the annotation `FAILED_WITH` if there was no driver to upgrade to."""
NODE_LOST: Final = "node-lost"
"""Value of the annotation `FAILED_WITH` if the node was not ready: the failure says nothing about the driver."""
_LONGEST_NOTE: Final = 1024

type Values = Mapping[str, str | None]
"""Labels or annotations to set, and, with None, to remove."""


class NodePatch(msgspec.Struct, frozen=True, kw_only=True):
    """Patch the Node."""

    note: str
    """For an Event; empty for none."""
    labels: Values = {}
    annotations: Values = {}
    unschedulable: bool | None = None
    """Whether to cordon or to uncordon it; None leaves it as it is."""
    warning: bool = False

    @property
    def state(self) -> UpgradeState | None:
        """The state that the node gets; None if it keeps its state."""
        found = self.labels.get(NodeLabel.UPGRADE_STATE)
        return UpgradeState(found) if found is not None else None

    def body(self, view: NodeView) -> dict[str, object]:
        """As a merge patch with only what differs; empty when nothing does."""
        labels, annotations = _differing(self.labels, view.labels), _differing(self.annotations, view.annotations)
        metadata = {"labels": labels, "annotations": annotations}
        body: dict[str, object] = {}
        if labels or annotations:
            body["metadata"] = {name: values for name, values in metadata.items() if values}
        if self.unschedulable is not None and self.unschedulable != view.unschedulable:
            body["spec"] = {"unschedulable": self.unschedulable or None}
        return body


class EvictPods(msgspec.Struct, frozen=True, kw_only=True):
    """Evict these pods."""

    note: str
    pods: tuple[Pod, ...]


class DeleteDriverPod(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the driver pod; its DaemonSet creates a new one."""

    note: str
    pod: DriverPod
    warning: bool = False


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Do nothing until something changes, or until a time."""

    reason: str
    until: float | None = None


type UpgradeAction = NodePatch | EvictPods | DeleteDriverPod | Wait


def stamp(now: float) -> str:
    return str(int(now))


def enter_state(
    state: UpgradeState,
    note: str,
    now: float,
    *,
    annotations: Values | None = None,
    labels: Values | None = None,
    unschedulable: bool | None = None,
) -> NodePatch:
    """Go to another state. The time is kept, and the count of renewals starts anew."""
    return NodePatch(
        note=note,
        labels={NodeLabel.UPGRADE_STATE: state.value, **(labels or {})},
        annotations={NodeAnnotation.STEP_SINCE: stamp(now), NodeAnnotation.RENEWALS: None, **(annotations or {})},
        unschedulable=unschedulable,
    )


def fail_upgrade(view: NodeView, why: str, now: float) -> NodePatch:
    """Let the upgrade of a node fail, with the reason in an annotation. The node stays cordoned; the agent may use the
    driver again.

    The driver that it failed with is kept: it is tried again with another driver, or, if it was lost, when it is back.
    """
    failed_with = (view.wanted or NO_DRIVER) if view.ready else NODE_LOST
    return NodePatch(
        note=f"The upgrade of the driver failed: {why}"[:_LONGEST_NOTE],
        labels={NodeLabel.UPGRADE_STATE: UpgradeState.FAILED.value, **unpause_agent(view)},
        annotations={
            NodeAnnotation.STEP_SINCE: stamp(now),
            NodeAnnotation.FAILURE: why[:_LONGEST_NOTE],
            NodeAnnotation.FAILED_WITH: failed_with,
            NodeAnnotation.LOST_SINCE: None,
            NodeAnnotation.RENEWALS: None,
        },
        warning=True,
    )


def unpause_agent(view: NodeView) -> Values:
    """Removes the label that made our agent release the driver, if an upgrade has set it."""
    return {NodeLabel.AGENT: None} if view.labels.get(NodeLabel.AGENT) == PAUSED else {}


def _differing(wanted: Values, held: Mapping[str, str]) -> dict[str, str | None]:
    return {str(key): value for key, value in wanted.items() if held.get(key) != value}
