"""How the driver pod is replaced, and its successor checked. Pure.

Whoever holds the driver open makes its replacement fail. Our agent is asked to let go first, and has a minute for it.
"""

from typing import Final

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.operator.upgrade.actions import (
    PAUSED,
    Change,
    Restart,
    Step,
    Values,
    Wait,
    enter,
    fail,
    stamp,
    unpaused,
)
from gpu_control_plane.operator.upgrade.deadlines import renewed
from gpu_control_plane.operator.upgrade.node_view import DriverPod, NodeView
from gpu_control_plane.operator.upgrade.validation import validated

RESTART_LIMIT: Final = 1800.0
"""Seconds a new driver pod has to become ready: drivers are compiled on the node."""
VALIDATION_LIMIT: Final = 600.0
"""Seconds in which a new driver has to prove itself."""
QUIESCE_LIMIT: Final = 60.0
"""Seconds the agent has to let go of the driver."""
MOST_RESTARTS: Final = 10
NO_SUCCESSOR: Final = "its driver pod is nobody's, and no DaemonSet would bring another one"


def begin_restart(
    view: NodeView, note: str, now: float, annotations: Values | None = None, *, unschedulable: bool | None = None
) -> Change:
    """On to the replacement of the driver pod; the agent is asked to let go with the same write."""
    pause: Values = {NodeLabel.AGENT: PAUSED} if _to_be_touched(view) and _can_be_paused(view) else {}
    return enter(
        UpgradeState.POD_RESTART_REQUIRED,
        note,
        now,
        annotations=annotations,
        labels=pause,
        unschedulable=unschedulable,
    )


def restart(view: NodeView, now: float) -> Step:
    """Replace the driver pod and wait until its successor is ready."""
    since = view.since(NodeAnnotation.STEP_SINCE)
    if since is None:
        return Change(note="The driver pod is to be replaced", annotations={NodeAnnotation.STEP_SINCE: stamp(now)})
    if view.settled and not view.safe_load:
        return enter(
            UpgradeState.VALIDATION_REQUIRED,
            "The new driver pod is ready",
            now,
            labels=unpaused(view),
            annotations={NodeAnnotation.VALIDATION_START: stamp(now)},
        )
    if failing := next((pod for pod in view.drivers if _fails(pod)), None):
        return fail(view, f"{failing.name} restarted {failing.restarts} times{_because(failing)}", now)
    deadline = _deadline(view, since)
    ours = _to_be_touched(view) and not view.without_successor
    if now >= deadline:
        anew = renewed(view, RESTART_LIMIT, now) if ours else None
        late = f"no new driver was ready after {RESTART_LIMIT / 60:.0f} min: {_missing(view)}"
        return anew or fail(view, late, now)
    if ours:
        return _quiesce(view, since, now) or _replace(view)
    return Wait(reason=_missing(view), until=deadline)


def validate(view: NodeView, now: float) -> Step | None:
    """Wait until the new driver has proven itself; None when it has."""
    since = view.since(NodeAnnotation.VALIDATION_START)
    if since is None:
        return Change(note="The new driver is checked", annotations={NodeAnnotation.VALIDATION_START: stamp(now)})
    missing = validated(view) if view.settled else _missing(view)
    if missing is None:
        return None
    if now >= since + VALIDATION_LIMIT:
        return fail(view, f"the new driver has not proven itself in {VALIDATION_LIMIT:.0f} s: {missing}", now)
    return Wait(reason=missing, until=since + VALIDATION_LIMIT)


def _deadline(view: NodeView, since: float) -> float:
    """A driver that was published in the middle has as much time as the first. It is not put off any further: pods
    may come and go for ever."""
    made = max((pod.created for pod in view.drivers if not pod.outdated), default=since)
    return min(max(since, made), since + RESTART_LIMIT) + RESTART_LIMIT


def _to_be_touched(view: NodeView) -> bool:
    """Whether the driver is about to be unloaded: its pod is outdated, or a new one waits for our word."""
    return bool(_outdated(view)) or (view.safe_load and any(not pod.leaving for pod in view.drivers))


def _outdated(view: NodeView) -> list[DriverPod]:
    return [pod for pod in view.drivers if pod.outdated and not pod.leaving]


def _quiesce(view: NodeView, since: float, now: float) -> Step | None:
    """Ask the agent to let go and wait for it; None when it has, or there is nobody to wait for."""
    if _can_be_paused(view):
        return Change(note="Our agent has to let go of the driver", labels={NodeLabel.AGENT: PAUSED})
    if _holds_on(view) and now < since + QUIESCE_LIMIT:
        return Wait(reason="our agent has to let go of the driver", until=since + QUIESCE_LIMIT)
    return None


def _replace(view: NodeView) -> Step:
    late = f" (our agent has not let go of the driver in {QUIESCE_LIMIT:.0f} s)" if _holds_on(view) else ""
    outdated = _outdated(view)
    if outdated:
        return Restart(note=f"The driver pod {outdated[0].name} is replaced{late}", pod=outdated[0], warning=bool(late))
    return Change(
        note=f"The new driver may load{late}", annotations={NodeAnnotation.SAFE_LOAD: None}, warning=bool(late)
    )


def _can_be_paused(view: NodeView) -> bool:
    """Whether the agent is there and nobody has spoken to it; another value of the label is a person's."""
    return view.agent is not None and view.agent.alive and NodeLabel.AGENT not in view.labels


def _holds_on(view: NodeView) -> bool:
    agent = view.agent
    return agent is not None and agent.alive and not agent.quiesced and view.labels.get(NodeLabel.AGENT) == PAUSED


def _fails(pod: DriverPod) -> bool:
    return not pod.outdated and not pod.ready and pod.restarts > MOST_RESTARTS


def _missing(view: NodeView) -> str:
    if not view.drivers:
        return "no driver pod is on the node"
    if view.without_successor:
        return NO_SUCCESSOR
    pod = next((pod for pod in view.drivers if pod.leaving), view.drivers[0])
    if pod.leaving:
        return f"the old driver pod {pod.name} is leaving"
    return f"the driver pod {pod.name} is not ready{_because(pod)}"


def _because(pod: DriverPod) -> str:
    return f": {pod.trouble}" if pod.trouble else ""
