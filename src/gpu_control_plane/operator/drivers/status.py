"""The status of an NVIDIADriver: state, conditions, and each of its DaemonSets. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import StackReason
from gpu_control_plane.api.nvidia.status import OperandState, StackStatus, State, StateReport, UpgradeReport
from gpu_control_plane.kube.sentences import counted, counted_are
from gpu_control_plane.operator.drivers.owner import DriverProblem
from gpu_control_plane.operator.stack.readiness import Readiness
from gpu_control_plane.operator.stack.status import ReadySummary, ready_conditions, unknown_fields

_MOST_NAMED: Final = 3
_MOST_STATES: Final = 64
_MESSAGE_LIMIT: Final = 1024


class DriverStatusInput(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the status of an NVIDIADriver depends on."""

    generation: int
    namespace: str
    asked_for: bool = True
    """Whether the ClusterPolicy, if there is one, leaves drivers to NVIDIADrivers."""
    problem: DriverProblem | None = None
    """Why no node changes its owner, or why the driver cannot be rendered or written."""
    readiness: Mapping[str, Readiness] = {}
    """The readiness of its DaemonSets, by name."""
    unidentified: Sequence[str] = ()
    """Nodes that get no driver because their labels do not say which one they need."""
    unlabelled: Sequence[str] = ()
    """Nodes that it should own, but whose owner label does not name it yet."""
    nodes: int = 0
    converged: bool = True
    """Whether the objects of the present spec have been written."""
    upgrade: UpgradeReport | None = None
    unknown: Sequence[str] = ()
    now: datetime


def driver_status(held: StackStatus, observed: DriverStatusInput) -> StackStatus:
    """The status of an NVIDIADriver. It is ready only when its present generation has been carried out."""
    summary, state = _summary(observed)
    return StackStatus(
        state=state,
        namespace=observed.namespace,
        observed_generation=observed.generation,
        states=tuple(_state_report(name, observed) for name in sorted(observed.readiness)[:_MOST_STATES]),
        upgrade=observed.upgrade,
        conditions=(
            *ready_conditions(held.conditions, summary, generation=observed.generation, now=observed.now),
            *unknown_fields(held.conditions, observed.unknown, observed.generation, observed.now),
        ),
    )


def _summary(observed: DriverStatusInput) -> tuple[ReadySummary, State]:
    if not observed.asked_for:
        message = "The ClusterPolicy brings drivers itself: set its driver.useNvidiaDriverCRD to use NVIDIADrivers."
        return ReadySummary(ready=False, reason=StackReason.RECONCILED, message=message), State.DISABLED
    if observed.problem is not None:
        return ReadySummary(
            ready=False, reason=observed.problem.reason, message=observed.problem.message
        ), State.NOT_READY
    if not_ready := _not_ready_reason(observed):
        return ReadySummary(ready=False, reason=StackReason.DRIVER_NOT_READY, message=not_ready), State.NOT_READY
    message = (
        f"The driver runs on {counted(observed.nodes, 'node')}."
        if observed.nodes
        else "No node gets its driver from here."
    )
    return ReadySummary(ready=True, reason=StackReason.RECONCILED, message=message), State.READY


def _not_ready_reason(observed: DriverStatusInput) -> str:
    """Why the driver is not ready; empty when it is."""
    if not observed.converged:
        return "the latest change is being written"
    parts = [_named(name, held) for name, held in sorted(observed.readiness.items()) if not held.ready]
    if observed.unlabelled:
        parts.append(f"{_count(observed.unlabelled)} not labelled with its name yet{_names(observed.unlabelled)}")
    if observed.unidentified:
        why = "as Node Feature Discovery has not labelled them with system and kernel"
        parts.append(f"{_count(observed.unidentified)} left out, {why}{_names(observed.unidentified)}")
    return "; ".join(parts)


def _count(nodes: Sequence[str]) -> str:
    return counted_are(len(nodes), "node")


def _names(nodes: Sequence[str]) -> str:
    return f" ({', '.join(sorted(nodes)[:_MOST_NAMED])})"


def _named(name: str, readiness: Readiness) -> str:
    nodes = ", ".join(f"{trouble.node} ({trouble.reason})" for trouble in readiness.troubles[:_MOST_NAMED])
    return f"{name}: {nodes or readiness.message or 'not ready'}"


def _state_report(name: str, observed: DriverStatusInput) -> StateReport:
    readiness = observed.readiness[name]
    ready = readiness.ready and observed.converged
    return StateReport(
        name=name,
        state=OperandState.READY if ready else OperandState.NOT_READY,
        desired=readiness.desired,
        ready=readiness.available,
        message="" if ready else readiness.message[:_MESSAGE_LIMIT],
        nodes=readiness.troubles,
    )
