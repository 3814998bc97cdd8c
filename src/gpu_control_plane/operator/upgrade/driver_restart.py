"""How the driver pod is replaced, and how the new driver is checked. Pure.

A process that has the driver's devices open makes its replacement fail. Our agent is asked to release the driver first,
and has a minute for it. NVIDIA's validator says whether the new driver works; where it does not run, our agent does.
"""

from typing import Final

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.operator.upgrade.actions import (
    PAUSED,
    DeleteDriverPod,
    NodePatch,
    UpgradeAction,
    Values,
    Wait,
    enter_state,
    fail_upgrade,
    stamp,
    unpause_agent,
)
from gpu_control_plane.operator.upgrade.deadlines import renew_step
from gpu_control_plane.operator.upgrade.node_view import AgentView, DriverPod, NodeView
from gpu_control_plane.settings import format_duration

MOST_RESTARTS: Final = 10
NO_SUCCESSOR: Final = "no DaemonSet owns its driver pod, and none would bring another one"
AGENT_CHECKS: Final = ("driver", "cuda")
"""Checks of the agent that a new driver has to pass."""


def begin_restart(
    view: NodeView, note: str, now: float, annotations: Values | None = None, *, unschedulable: bool | None = None
) -> NodePatch:
    """Go on to the replacement of the driver pod; the same write asks the agent to release the driver."""
    pause: Values = {NodeLabel.AGENT: PAUSED} if _to_be_unloaded(view) and _can_be_paused(view) else {}
    return enter_state(
        UpgradeState.POD_RESTART_REQUIRED,
        note,
        now,
        annotations=annotations,
        labels=pause,
        unschedulable=unschedulable,
    )


def restart(view: NodeView, now: float) -> UpgradeAction:
    """Replace the driver pod and wait until the new one is ready."""
    since = view.since(NodeAnnotation.STEP_SINCE)
    if since is None:
        return NodePatch(note="The driver pod is to be replaced", annotations={NodeAnnotation.STEP_SINCE: stamp(now)})
    if view.up_to_date and not view.safe_load:
        return enter_state(
            UpgradeState.VALIDATION_REQUIRED,
            "The new driver pod is ready",
            now,
            labels=unpause_agent(view),
            annotations={NodeAnnotation.VALIDATION_START: stamp(now)},
        )
    if failing := next((pod for pod in view.drivers if _fails(pod)), None):
        return fail_upgrade(view, f"{failing.name} restarted {failing.restarts} times{_because(failing.trouble)}", now)
    deadline = _deadline(view, since)
    has_work = _to_be_unloaded(view) and not view.without_successor and not view.missing_secret
    if now >= deadline:
        limit = view.limits.driver_start_timeout
        renewal = renew_step(view, limit.total_seconds(), now) if has_work else None
        late = f"no new driver was ready after {format_duration(limit)}: {_missing(view)}"
        return renewal or fail_upgrade(view, late, now)
    if has_work:
        return _quiesce(view, since, now) or _replace(view)
    return Wait(reason=_missing(view), until=deadline)


def missing_secret(view: NodeView) -> str:
    return f"the Secret {view.missing_secret}, without which no new driver would start, does not exist: create it"


def validate(view: NodeView, now: float) -> UpgradeAction | None:
    """Wait until the new driver has passed its checks; None when it has."""
    since = view.since(NodeAnnotation.VALIDATION_START)
    if since is None:
        return NodePatch(note="The new driver is checked", annotations={NodeAnnotation.VALIDATION_START: stamp(now)})
    missing = validation_problem(view) if view.up_to_date else _missing(view)
    if missing is None:
        return None
    limit = view.limits.driver_check_timeout
    until = since + limit.total_seconds()
    if now >= until:
        return fail_upgrade(
            view, f"the new driver has not passed its checks in {format_duration(limit)}: {missing}", now
        )
    return Wait(reason=missing, until=until)


def validation_problem(view: NodeView) -> str | None:
    """Which check of the driver is missing or has failed; None when all have passed."""
    if view.validators:
        unready = [pod for pod in view.validators if not pod.ready]
        return f"the validator {unready[0].name} is not ready{_because(unready[0].trouble)}" if unready else None
    if view.agent is None:
        return "nothing checks the driver: neither NVIDIA's validator nor our agent is on the node"
    return _agent_check_problem(view.agent, view.drivers)


def _agent_check_problem(agent: AgentView, drivers: tuple[DriverPod, ...]) -> str | None:
    if agent.quiesced:
        return "the agent has not come back to the driver"
    for check in AGENT_CHECKS:
        if check in agent.failed:
            return f"the agent's check of {check} failed{_because(agent.failed[check])}"
        if agent.passed.get(check, 0.0) < max((pod.created for pod in drivers), default=0.0):
            return f"the agent has not checked {check} with the new driver yet"
    wanted = {pod.version for pod in drivers if pod.version} | ({agent.driver} if agent.driver else set())
    if wanted - {agent.checked_driver}:
        return f"the agent has checked driver {agent.checked_driver}, not {', '.join(sorted(wanted))}"
    return None


def _deadline(view: NodeView, since: float) -> float:
    """A driver that is published during the step has as much time as the first one. The deadline is not put off any
    further: pods may be replaced for ever."""
    created = max((pod.created for pod in view.drivers if not pod.outdated), default=since)
    limit = view.limits.driver_start_timeout.total_seconds()
    return min(max(since, created), since + limit) + limit


def _to_be_unloaded(view: NodeView) -> bool:
    """Whether the driver is about to be unloaded: its pod is outdated, or a new one waits for permission to load."""
    return bool(_outdated(view)) or (view.safe_load and any(not pod.leaving for pod in view.drivers))


def _outdated(view: NodeView) -> list[DriverPod]:
    return [pod for pod in view.drivers if pod.outdated and not pod.leaving]


def _quiesce(view: NodeView, since: float, now: float) -> UpgradeAction | None:
    """Ask the agent to release the driver and wait for it; None when it has, or if there is no agent to wait for."""
    if _can_be_paused(view):
        return NodePatch(note="Our agent has to release the driver", labels={NodeLabel.AGENT: PAUSED})
    until = since + view.limits.driver_release_timeout.total_seconds()
    if _holds_driver(view) and now < until:
        return Wait(reason="our agent has to release the driver", until=until)
    return None


def _replace(view: NodeView) -> UpgradeAction:
    limit = format_duration(view.limits.driver_release_timeout)
    late = f" (our agent has not released the driver in {limit})" if _holds_driver(view) else ""
    outdated = _outdated(view)
    if outdated:
        note = f"The driver pod {outdated[0].name} is replaced{late}"
        return DeleteDriverPod(note=note, pod=outdated[0], warning=bool(late))
    return NodePatch(
        note=f"The new driver may load{late}", annotations={NodeAnnotation.SAFE_LOAD: None}, warning=bool(late)
    )


def _can_be_paused(view: NodeView) -> bool:
    """Whether the agent runs and its label is not set; another value of the label was set by a person."""
    return view.agent is not None and view.agent.alive and NodeLabel.AGENT not in view.labels


def _holds_driver(view: NodeView) -> bool:
    agent = view.agent
    return agent is not None and agent.alive and not agent.quiesced and view.labels.get(NodeLabel.AGENT) == PAUSED


def _fails(pod: DriverPod) -> bool:
    return not pod.outdated and not pod.ready and pod.restarts > MOST_RESTARTS


def _missing(view: NodeView) -> str:
    if not view.drivers:
        return "no driver pod is on the node"
    if view.without_successor:
        return NO_SUCCESSOR
    if view.missing_secret:
        return missing_secret(view)
    pod = next((pod for pod in view.drivers if pod.leaving), view.drivers[0])
    if pod.leaving:
        return f"the old driver pod {pod.name} is leaving"
    if pod.ready and not pod.revision_known:
        return f"the revision of the driver pod {pod.name} is not known"
    return f"the driver pod {pod.name} is not ready{_because(pod.trouble)}"


def _because(trouble: str) -> str:
    return f": {trouble}" if trouble else ""
