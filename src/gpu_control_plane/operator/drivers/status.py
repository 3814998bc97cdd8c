"""What an NVIDIADriver says of itself: state, conditions, and each of its DaemonSets. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import StackReason
from gpu_control_plane.api.nvidia.status import OperandState, StackStatus, State, StateReport, UpgradeReport
from gpu_control_plane.operator.drivers.owner import Trouble
from gpu_control_plane.operator.stack.readiness import Standing
from gpu_control_plane.operator.stack.status import Verdict, outcome, unknown_fields

_NAMED: Final = 3
_MOST_STATES: Final = 64
_MESSAGE_LIMIT: Final = 1024


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the status of an NVIDIADriver is made from."""

    generation: int
    namespace: str
    asked_for: bool = True
    """Whether the ClusterPolicy, if there is one, leaves drivers to NVIDIADrivers."""
    trouble: Trouble | None = None
    """Why no node can be given an owner, or the driver cannot be rendered or written."""
    standings: Mapping[str, Standing] = {}
    """How its DaemonSets stand, by name."""
    left_out: Sequence[str] = ()
    """Nodes that get no driver because their labels do not say which."""
    unlabelled: Sequence[str] = ()
    """Nodes that are to be its, but do not carry its name yet."""
    nodes: int = 0
    converged: bool = True
    """Whether the objects of the present spec have been written."""
    upgrade: UpgradeReport | None = None
    unknown: Sequence[str] = ()
    now: datetime


def driver_status(held: StackStatus, picture: Picture) -> StackStatus:
    """The status of an NVIDIADriver. It speaks of the present generation only when that has been carried out."""
    verdict, state = _verdict(picture)
    return StackStatus(
        state=state,
        namespace=picture.namespace,
        observed_generation=picture.generation,
        states=tuple(_report(name, picture) for name in sorted(picture.standings)[:_MOST_STATES]),
        upgrade=picture.upgrade,
        conditions=(
            *outcome(held.conditions, verdict, generation=picture.generation, now=picture.now),
            *unknown_fields(held.conditions, picture.unknown, picture.generation, picture.now),
        ),
    )


def _verdict(picture: Picture) -> tuple[Verdict, State]:
    if not picture.asked_for:
        message = "The ClusterPolicy brings drivers itself: set its driver.useNvidiaDriverCRD to use NVIDIADrivers."
        return Verdict(ready=False, reason=StackReason.RECONCILED, message=message), State.DISABLED
    if picture.trouble is not None:
        return Verdict(ready=False, reason=picture.trouble.reason, message=picture.trouble.message), State.NOT_READY
    if waiting := _waiting(picture):
        return Verdict(ready=False, reason=StackReason.DRIVER_NOT_READY, message=waiting), State.NOT_READY
    message = f"The driver runs on {picture.nodes} nodes." if picture.nodes else "No node gets its driver from here."
    return Verdict(ready=True, reason=StackReason.RECONCILED, message=message), State.READY


def _waiting(picture: Picture) -> str:
    """What is waited for; empty when everything runs."""
    if not picture.converged:
        return "the latest change is being written"
    parts = [_named(name, held) for name, held in sorted(picture.standings.items()) if not held.ready]
    if picture.unlabelled:
        parts.append(f"{_count(picture.unlabelled)} not labelled with its name yet")
    if picture.left_out:
        why = "as Node Feature Discovery has not labelled them with system and kernel"
        parts.append(f"{_count(picture.left_out)} left out, {why}")
    return "; ".join(parts)


def _count(nodes: Sequence[str]) -> str:
    first = ", ".join(sorted(nodes)[:_NAMED])
    return f"{len(nodes)} {'node is' if len(nodes) == 1 else 'nodes are'} ({first})"


def _named(name: str, standing: Standing) -> str:
    nodes = ", ".join(f"{trouble.node} ({trouble.reason})" for trouble in standing.troubles[:_NAMED])
    return f"{name}: {nodes or standing.message or 'not ready'}"


def _report(name: str, picture: Picture) -> StateReport:
    standing = picture.standings[name]
    ready = standing.ready and picture.converged
    return StateReport(
        name=name,
        state=OperandState.READY if ready else OperandState.NOT_READY,
        desired=standing.desired,
        ready=standing.available,
        message="" if ready else standing.message[:_MESSAGE_LIMIT],
        nodes=standing.troubles,
    )
