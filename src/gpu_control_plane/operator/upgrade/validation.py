"""Whether a new driver works: NVIDIA's validator says so where it runs, our agent elsewhere. Pure."""

from typing import Final

from gpu_control_plane.operator.upgrade.node_view import Agent, DriverPod, NodeView

CHECKS: Final = ("driver", "cuda")
"""Checks of the agent that a new driver has to pass."""


def validated(view: NodeView) -> str | None:
    """None when the driver has proven itself, else what is missing."""
    if view.validators:
        unready = [pod for pod in view.validators if not pod.ready]
        return f"the validator {unready[0].name} is not ready{_because(unready[0].trouble)}" if unready else None
    if view.agent is None:
        return "nothing checks the driver: neither NVIDIA's validator nor our agent is on the node"
    return _checked_by_agent(view.agent, view.drivers)


def _checked_by_agent(agent: Agent, drivers: tuple[DriverPod, ...]) -> str | None:
    if agent.quiesced:
        return "the agent has not come back to the driver"
    for check in CHECKS:
        if check in agent.failed:
            return f"the agent's check of {check} failed{_because(agent.failed[check])}"
        if agent.passed.get(check, 0.0) < max((pod.created for pod in drivers), default=0.0):
            return f"the agent has not checked {check} with the new driver yet"
    wanted = {pod.version for pod in drivers if pod.version} | ({agent.driver} if agent.driver else set())
    if wanted - {agent.checked_driver}:
        return f"the agent has checked driver {agent.checked_driver}, not {', '.join(sorted(wanted))}"
    return None


def _because(trouble: str) -> str:
    return f": {trouble}" if trouble else ""
