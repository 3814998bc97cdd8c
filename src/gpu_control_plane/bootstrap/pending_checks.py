"""What has yet to be checked before a node becomes ready, for the first time or again.

A node that is ready stays so while its agent restarts. One that is not becomes ready only by proof: its agent must
work, and must have reported what its checks found with the driver that is loaded now; a validator's Pod must have
passed. Where neither checks the node, there is nothing to wait for.
"""

from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.bootstrap.operand_status import OperandStatus, OperandStatuses
from gpu_control_plane.bootstrap.operands import VALIDATORS, Operand
from gpu_control_plane.bootstrap.snapshot import Settings, Snapshot
from gpu_control_plane.bootstrap.software import step_of
from gpu_control_plane.rules.node_readiness import REQUIRED_CHECKS

_REQUIRED_STEPS: Final = (*REQUIRED_CHECKS, "")
"""The steps that a validator has to pass; the empty one is before the first."""


class PendingCheck(msgspec.Struct, frozen=True):
    message: str
    until: datetime | None = None
    """When it has been pending for so long that a new node says so; None if it says so at once."""


def pending_check(snapshot: Snapshot, operands: OperandStatuses, settings: Settings) -> PendingCheck | None:
    """The first check that is still to come; None for a node that is proven."""
    agent = operands.get(Operand.AGENT)
    if agent is not None and not agent.works:
        return _agent_starting(snapshot, agent, settings)
    if agent is not None and agent.pod is not None and _agent_has_yet_to_check(snapshot):
        where, name = agent.pod.metadata.namespace, agent.pod.name
        message = f"The agent has not yet told what its checks of the node found: `kubectl -n {where} logs {name}`."
        return PendingCheck(message, _deadline(snapshot, agent, settings))
    for validator in operands.among(VALIDATORS):
        if not validator.works and validator.pod is not None and (step := step_of(validator)) in _REQUIRED_STEPS:
            where = f"at its step {step}" if step else "starting"
            message = f"The {validator.operand} pod {validator.pod.name} is {where}."
            return PendingCheck(message, _deadline(snapshot, validator, settings))
    return None


def _agent_starting(snapshot: Snapshot, agent: OperandStatus, settings: Settings) -> PendingCheck:
    if not snapshot.reachable:
        return PendingCheck(
            "The kubelet of the node does not answer, so it is not known whether its agent works: "
            f"`kubectl describe node {snapshot.name}`."
        )
    message = f"The agent of the node is not ready yet. {agent.trouble}"
    return PendingCheck(message, _deadline(snapshot, agent, settings))


def _agent_has_yet_to_check(snapshot: Snapshot) -> bool:
    """Whether the agent checks the node, and has not done so with this driver. One that does not say is taken for one
    that does."""
    status = snapshot.state.status
    if status.agent is not None and status.agent.checks is False:
        return False
    checked, driver = status.validation, status.driver
    if checked is None:
        return True
    loaded = driver.version if driver is not None else None
    return checked.driver_version is not None and loaded is not None and checked.driver_version != loaded


def _deadline(snapshot: Snapshot, status: OperandStatus, settings: Settings) -> datetime:
    return (status.since or snapshot.now) + settings.loss_after
