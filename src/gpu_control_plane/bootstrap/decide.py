"""The conditions of a node: whether its cards may join pools, and what is missing if not. Pure.

The agent's report counts, and a check that failed counts more. A node that no program checks is not held up by that:
it would never be ready. Missing metrics and labels are shown but hold nothing up either, since cards work without them.
Whether the kubelet of a ready node answers is not asked: that comes and goes, and the scheduler looks after it.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.conditions import GOOD_STATUS, DesiredCondition, failed_check_message
from gpu_control_plane.bootstrap.degraded import Degradation, degradations
from gpu_control_plane.bootstrap.operand_status import OperandStatuses, operand_statuses
from gpu_control_plane.bootstrap.operands import Operand, operand_of
from gpu_control_plane.bootstrap.pending_checks import PendingCheck, pending_check
from gpu_control_plane.bootstrap.providers import feature_labels, monitoring
from gpu_control_plane.bootstrap.snapshot import Awaited, Settings, Snapshot, Timers
from gpu_control_plane.bootstrap.software import driver, stuck_validator, toolkit
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import TRUE, condition, find, is_true
from gpu_control_plane.rules.node_readiness import CUDA, failed_check

_DEFAULTS: Final = Settings()
_MAX_MESSAGE: Final = 2048


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a node, when to look again, and the timers to keep until then. No conditions: nothing is
    written."""

    conditions: tuple[Condition, ...] = ()
    again_in: timedelta | None = None
    timers: Timers = Timers()


def decide(snapshot: Snapshot, settings: Settings = _DEFAULTS) -> Decision:
    """The conditions of a node; none before inventory has written its own, and none while it is about to."""
    complete = find(snapshot.conditions, NodeCondition.INVENTORY_COMPLETE)
    if complete is None:
        return Decision()
    if snapshot.node is not None and not settings.managed.include(snapshot.node.metadata.labels):
        return _unmanaged(snapshot, settings.managed.why_not(snapshot.node))
    awaited = _awaited(snapshot, complete)
    if awaited is not None:
        left = snapshot.awaited_since(awaited) + settings.loss_after - snapshot.now
        if left > timedelta():
            waiting = _returning(snapshot) if awaited is Awaited.AGENT_POD else Decision()
            return msgspec.structs.replace(waiting, again_in=left, timers=_also_awaiting(snapshot, awaited))
    return _decide_now(snapshot, complete, awaited, settings)


def _decide_now(snapshot: Snapshot, complete: Condition, awaited: Awaited | None, settings: Settings) -> Decision:
    operands = operand_statuses(snapshot, settings)
    software = driver(snapshot, operands), toolkit(snapshot, operands)
    labels = feature_labels(snapshot, operands, settings)
    troubles = degradations(snapshot, operands)
    is_ready = is_true(snapshot.conditions, NodeCondition.READY_FOR_POOLING)
    pending = None if is_ready else pending_check(snapshot, operands, settings)
    readiness = _readiness(complete, _obstacles(snapshot, operands, software, troubles, pending))
    desired = *software, monitoring(snapshot, operands), labels.condition, _degraded(troubles), readiness
    still_awaited = {*([awaited] if awaited is not None else []), *([Awaited.FEATURE_LABELS] if labels.awaited else [])}
    deadlines = [operands.again_at] if operands.again_at is not None else []
    if labels.awaited:
        deadlines.append(snapshot.awaited_since(Awaited.FEATURE_LABELS) + settings.loss_after)
    if pending is not None and pending.until is not None and pending.until > snapshot.now:
        deadlines.append(pending.until)
    too_early = _is_too_early(snapshot, readiness, pending)
    return Decision(
        conditions=() if too_early else tuple(_condition(snapshot, one) for one in desired),
        again_in=max(min(deadlines) - snapshot.now, timedelta()) if deadlines else None,
        timers=_timers(snapshot, operands, still_awaited),
    )


def _timers(snapshot: Snapshot, operands: OperandStatuses, awaited: set[Awaited]) -> Timers:
    missing_since = snapshot.timers.missing_since
    return Timers(
        operands=frozenset(operands.by_operand.keys() - operands.missing),
        missing_since={operand: missing_since.get(operand, snapshot.now) for operand in operands.missing},
        awaited_since={one: snapshot.awaited_since(one) for one in awaited},
    )


def _also_awaiting(snapshot: Snapshot, awaited: Awaited) -> Timers:
    """The timers that are running, and one more."""
    since: dict[Awaited, datetime] = {**snapshot.timers.awaited_since, awaited: snapshot.awaited_since(awaited)}
    return msgspec.structs.replace(snapshot.timers, awaited_since=since)


def _unmanaged(snapshot: Snapshot, why: str) -> Decision:
    """The node is not managed, or not managed again yet. Its last report may be long past, so nothing is concluded from
    it, and no alert is raised."""
    statuses = {NodeCondition.DEGRADED: False, NodeCondition.READY_FOR_POOLING: False}
    desired = (DesiredCondition(kind, statuses.get(kind), Reason.NOT_MANAGED, why) for kind in GOOD_STATUS)
    return Decision(conditions=tuple(_condition(snapshot, one) for one in desired))


def _returning(snapshot: Snapshot) -> Decision:
    """The label that took the node out is gone, and must not be named any more."""
    return _unmanaged(snapshot, "The node is managed again. No pod gets a card before its agent is back.")


def _awaited(snapshot: Snapshot, complete: Condition) -> Awaited | None:
    """What another program is about to write. Conditions that are written before it would be withdrawn a moment later,
    and cards may have been issued meanwhile."""
    if complete.status == TRUE and not snapshot.report_observed:
        return Awaited.REPORT_OBSERVED
    held = find(snapshot.conditions, NodeCondition.READY_FOR_POOLING)
    was_out = held is not None and held.reason == Reason.NOT_MANAGED
    has_agent = any(operand_of(pod, snapshot.namespace) is Operand.AGENT and pod.active for pod in snapshot.pods)
    return Awaited.AGENT_POD if was_out and not has_agent else None


def _degraded(troubles: list[Degradation]) -> DesiredCondition:
    kind = NodeCondition.DEGRADED
    if not troubles:
        return DesiredCondition(kind, False, Reason.UNDISTURBED, "The agent alone serves the cards of the node.")
    return DesiredCondition(kind, True, troubles[0].reason, " ".join(trouble.message for trouble in troubles))


def _readiness(complete: Condition, obstacles: Iterator[tuple[Reason, str]]) -> DesiredCondition:
    """ReadyForPooling with the first obstacle, in the order in which a person would clear them."""
    kind = NodeCondition.READY_FOR_POOLING
    if complete.status != TRUE:
        return DesiredCondition(kind, False, Reason.INVENTORY_INCOMPLETE, complete.message)
    for reason, message in obstacles:
        return DesiredCondition(kind, False, reason, message)
    return DesiredCondition(kind, True, Reason.READY, "The cards of the node may join pools.")


def _is_too_early(snapshot: Snapshot, readiness: DesiredCondition, pending: PendingCheck | None) -> bool:
    """Whether a new node only waits for its checks: then its conditions are written once, when they are known."""
    new = find(snapshot.conditions, NodeCondition.READY_FOR_POOLING) is None
    waiting = pending is not None and pending.until is not None and snapshot.now < pending.until
    return new and waiting and readiness.reason is Reason.CHECKS_PENDING


def _obstacles(
    snapshot: Snapshot,
    operands: OperandStatuses,
    software: tuple[DesiredCondition, DesiredCondition],
    troubles: list[Degradation],
    pending: PendingCheck | None,
) -> Iterator[tuple[Reason, str]]:
    """Without its agent the last report may be old, so that comes first; another device plugin is removed last. What
    only takes time is named when nothing else is in the way."""
    blocking = [trouble for trouble in troubles if trouble.blocks]
    yield from ((trouble.reason, trouble.message) for trouble in blocking if trouble.reason is Reason.AGENT_NOT_READY)
    for found, reason in zip(software, (Reason.DRIVER_NOT_READY, Reason.TOOLKIT_NOT_READY), strict=True):
        if found.status:
            yield reason, found.message
    if failed := failed_check(snapshot.state.status, CUDA):
        yield Reason.VALIDATION_FAILED, failed_check_message(failed)
    if stuck := stuck_validator(operands, CUDA):
        yield Reason.VALIDATOR_NOT_PASSED, stuck
    yield from ((trouble.reason, trouble.message) for trouble in blocking)
    if snapshot.state.status.plugin is None and (other := operands.get(Operand.NVIDIA_PLUGIN)) is not None:
        message = f"The cards of the node are served by the {other.operand} pod, so no pool can have them."
        yield Reason.CONFLICTING_DEVICE_PLUGIN, message
    if pending is not None:
        yield Reason.CHECKS_PENDING, pending.message


def _condition(snapshot: Snapshot, one: DesiredCondition) -> Condition:
    message = one.message[:_MAX_MESSAGE]
    return condition(snapshot.conditions, one.kind.value, one.status, one.reason.value, message, now=snapshot.now)
