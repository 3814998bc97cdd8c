"""What is still to be seen before a node is ready, for the first time or again.

Patience is for what has been proven: a ready node stays ready while its agent restarts. One that is not is given
nothing on credit. Its agent must work, and must have told what its checks found with the driver that is loaded now; a
validator's pod must have passed. Where neither is told to check, nothing is waited for.
"""

from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.bootstrap.operands import NO_CHECKS_OPTION, VALIDATORS, Operand
from gpu_control_plane.bootstrap.snapshot import Settings, Snapshot
from gpu_control_plane.bootstrap.software import step_of
from gpu_control_plane.bootstrap.standing import Standing, Standings, is_reachable
from gpu_control_plane.rules.node_readiness import REQUIRED_CHECKS

_PROVING: Final = (*REQUIRED_CHECKS, "")
"""The steps that a validator has to pass; the empty one is before the first."""


class Open(msgspec.Struct, frozen=True):
    """A question that time answers."""

    message: str
    until: datetime | None = None
    """When it has been open for so long that it is worth telling; None if it is at once."""


def open_question(seen: Snapshot, programs: Standings, settings: Settings) -> Open | None:
    """The first thing that has yet to be seen of a node; None where it is proven."""
    agent = programs.get(Operand.AGENT)
    if agent is not None and not agent.works:
        return _starting(seen, agent, settings)
    if agent is not None and agent.pod is not None and _owes_checks(seen, agent):
        where, name = agent.pod.metadata.namespace, agent.pod.name
        message = f"The agent has not yet told what its checks of the node found: `kubectl -n {where} logs {name}`."
        return Open(message, _patience_ends(seen, agent, settings))
    for validator in programs.among(VALIDATORS):
        if not validator.works and validator.pod is not None and (step := step_of(validator)) in _PROVING:
            where = f"at its step {step}" if step else "starting"
            message = f"The {validator.operand} pod {validator.pod.name} is {where}."
            return Open(message, _patience_ends(seen, validator, settings))
    return None


def _starting(seen: Snapshot, agent: Standing, settings: Settings) -> Open:
    if not is_reachable(seen):
        return Open(
            "The kubelet of the node does not answer, so nobody knows whether its agent works: "
            f"`kubectl describe node {seen.name}`."
        )
    return Open(f"The agent of the node is not ready yet. {agent.trouble}", _patience_ends(seen, agent, settings))


def _owes_checks(seen: Snapshot, agent: Standing) -> bool:
    """Whether the agent is told to check the node, and has not done so with this driver."""
    containers = agent.pod.spec.containers if agent.pod is not None else ()
    if any(NO_CHECKS_OPTION in container.args for container in containers):
        return False
    checked, driver = seen.state.status.validation, seen.state.status.driver
    if checked is None:
        return True
    loaded = driver.version if driver is not None else None
    return checked.driver_version is not None and loaded is not None and checked.driver_version != loaded


def _patience_ends(seen: Snapshot, standing: Standing, settings: Settings) -> datetime:
    return (standing.since or seen.now) + settings.loss_after
