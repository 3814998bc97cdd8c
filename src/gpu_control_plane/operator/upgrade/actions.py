"""What a step of an upgrade may be: one write, or a wait."""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.operator.upgrade.node_view import DriverPod, NodeView
from gpu_control_plane.operator.upgrade.notes import LOST, NO_DRIVER
from gpu_control_plane.operator.views import Pod

PAUSED: Final = "paused-for-driver-upgrade"
"""Value of the label that makes our agent let go of the driver."""
_LONGEST: Final = 1024

type Values = Mapping[str, str | None]
"""Labels or annotations to set, and, with None, to remove."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One patch of the Node."""

    note: str
    """For people; empty when there is nothing they should know."""
    labels: Values = {}
    annotations: Values = {}
    unschedulable: bool | None = None
    """Whether to cordon or to uncordon it; None leaves it as it is."""
    warning: bool = False

    @property
    def state(self) -> UpgradeState | None:
        """The state it leads to; None if the node stays where it is."""
        found = self.labels.get(NodeLabel.UPGRADE_STATE)
        return UpgradeState(found) if found is not None else None

    def patch(self, view: NodeView) -> dict[str, object]:
        """As a merge patch with only what differs; empty when nothing does."""
        labels, annotations = _news(self.labels, view.labels), _news(self.annotations, view.annotations)
        metadata = {"labels": labels, "annotations": annotations}
        body: dict[str, object] = {}
        if labels or annotations:
            body["metadata"] = {name: values for name, values in metadata.items() if values}
        if self.unschedulable is not None and self.unschedulable != view.unschedulable:
            body["spec"] = {"unschedulable": self.unschedulable or None}
        return body


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """Ask these pods to leave."""

    note: str
    pods: tuple[Pod, ...]


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the driver pod; its DaemonSet makes a new one."""

    note: str
    pod: DriverPod
    warning: bool = False


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing to do until something changes, or until a moment has come."""

    reason: str
    until: float | None = None


type Step = Change | Evict | Restart | Wait


def stamp(now: float) -> str:
    return str(int(now))


def enter(
    state: UpgradeState,
    note: str,
    now: float,
    *,
    annotations: Values | None = None,
    labels: Values | None = None,
    unschedulable: bool | None = None,
) -> Change:
    """Go to another state; the time of it is kept, and has not been renewed yet."""
    return Change(
        note=note,
        labels={NodeLabel.UPGRADE_STATE: state.value, **(labels or {})},
        annotations={NodeAnnotation.STEP_SINCE: stamp(now), NodeAnnotation.RENEWALS: None, **(annotations or {})},
        unschedulable=unschedulable,
    )


def fail(view: NodeView, why: str, now: float) -> Change:
    """Give up, and say why where a person looks. The node stays cordoned; the agent may use the driver again.

    What it failed with is kept: it is tried again with another driver, or, if it was lost, when it is back.
    """
    failed_with = (view.wanted or NO_DRIVER) if view.ready else LOST
    return Change(
        note=f"The upgrade of the driver failed: {why}"[:_LONGEST],
        labels={NodeLabel.UPGRADE_STATE: UpgradeState.FAILED.value, **unpaused(view)},
        annotations={
            NodeAnnotation.STEP_SINCE: stamp(now),
            NodeAnnotation.FAILURE: why[:_LONGEST],
            NodeAnnotation.FAILED_WITH: failed_with,
            NodeAnnotation.LOST_SINCE: None,
            NodeAnnotation.RENEWALS: None,
        },
        warning=True,
    )


def unpaused(view: NodeView) -> Values:
    """Lets our agent use the driver again, if it was we who stopped it."""
    return {NodeLabel.AGENT: None} if view.labels.get(NodeLabel.AGENT) == PAUSED else {}


def _news(wanted: Values, held: Mapping[str, str]) -> dict[str, str | None]:
    return {str(key): value for key, value in wanted.items() if held.get(key) != value}
