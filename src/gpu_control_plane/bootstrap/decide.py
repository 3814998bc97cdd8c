"""Whether the cards of a node may join pools, and what is missing if not.

What the node reports counts, and a check that failed counts more. A node that nobody is told to check is not held up
by that: there would never be a ready node. Missing metrics and labels are shown but hold nothing up either: cards work
without them. Whether the kubelet is well is not asked of a ready node: that comes and goes, and the scheduler looks
after it.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.disturbances import Disturbance, disturbances
from gpu_control_plane.bootstrap.events import GOOD
from gpu_control_plane.bootstrap.findings import Finding, about_step
from gpu_control_plane.bootstrap.functions import STALE, feature_labels, monitoring
from gpu_control_plane.bootstrap.operands import Operand, operand_of
from gpu_control_plane.bootstrap.proof import Open, open_question
from gpu_control_plane.bootstrap.snapshot import Remembered, Settings, Snapshot
from gpu_control_plane.bootstrap.software import driver, stuck_validator, toolkit
from gpu_control_plane.bootstrap.standing import Standings, standings
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import TRUE, condition, find, is_true
from gpu_control_plane.rules.node_readiness import CUDA, failed_check

_DEFAULTS: Final = Settings()
_LONGEST: Final = 2048

BEHIND: Final = "behind the report"
"""The doubt about a status that does not say what the node reports: inventory is about to write it."""
RETURNING: Final = "managed again"
"""The doubt about a node that is no longer taken out and has no agent yet: what it reported is as old as that."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a node, when to look again, and what to remember until then."""

    conditions: tuple[Condition, ...] = ()
    again_in: timedelta | None = None
    remember: Remembered = Remembered()


def decide(seen: Snapshot, settings: Settings = _DEFAULTS) -> Decision:
    """The conditions of a node; none before inventory has spoken of it, and none while it is about to speak."""
    complete = find(seen.held, NodeCondition.INVENTORY_COMPLETE)
    if complete is None:
        return Decision()
    if seen.node is not None and not settings.managed.include(seen.node.metadata.labels):
        return _unmanaged(seen, settings.managed.why_not(seen.node))
    awaited = _awaited(seen, complete)
    if awaited is not None and (left := _since(seen, awaited) + settings.loss_after - seen.now) > timedelta():
        noticed = {**seen.remembered.noticed, awaited: _since(seen, awaited)}
        return Decision(again_in=left, remember=msgspec.structs.replace(seen.remembered, noticed=noticed))
    programs = standings(seen, settings)
    software = driver(seen, programs), toolkit(seen, programs)
    labels = feature_labels(seen, programs, settings)
    troubles = disturbances(seen, programs)
    question = None if is_true(seen.held, NodeCondition.READY_FOR_POOLING) else open_question(seen, programs, settings)
    readiness = _ready(complete, _obstacles(seen, programs, software, troubles, question))
    findings = *software, monitoring(seen, programs), labels.finding, _degraded(troubles), readiness
    doubts = programs.doubts | ({STALE} if labels.doubted else set()) | ({awaited} if awaited is not None else set())
    remember = Remembered(
        had=frozenset(standing.operand for standing in programs.of.values() if standing.pod is not None),
        noticed={doubt: _since(seen, doubt) for doubt in doubts},
    )
    deadlines = [programs.again_at] if programs.again_at is not None else []
    if labels.doubted:
        deadlines.append(remember.noticed[STALE] + settings.loss_after)
    if question is not None and question.until is not None and question.until > seen.now:
        deadlines.append(question.until)
    return Decision(
        conditions=() if _too_early(seen, readiness, question) else tuple(_condition(seen, one) for one in findings),
        again_in=max(min(deadlines) - seen.now, timedelta()) if deadlines else None,
        remember=remember,
    )


def _unmanaged(seen: Snapshot, why: str) -> Decision:
    """Somebody took the node out. What it reported last may be long past, so nothing is missed there and nobody is
    alarmed."""
    said = {NodeCondition.DEGRADED: False, NodeCondition.READY_FOR_POOLING: False}
    findings = (Finding(kind, said.get(kind), Reason.NOT_MANAGED, why) for kind in GOOD)
    return Decision(conditions=tuple(_condition(seen, one) for one in findings))


def _awaited(seen: Snapshot, complete: Condition) -> str | None:
    """What is about to happen, so that nothing is said for a while: all would be taken back, or issued on credit."""
    if complete.status == TRUE and not seen.report_observed:
        return BEHIND
    held = find(seen.held, NodeCondition.READY_FOR_POOLING)
    was_out = held is not None and held.reason == Reason.NOT_MANAGED
    has_agent = any(operand_of(pod) is Operand.AGENT and pod.active for pod in seen.pods)
    return RETURNING if was_out and not has_agent else None


def _since(seen: Snapshot, doubt: str) -> datetime:
    return seen.remembered.noticed.get(doubt, seen.now)


def _degraded(troubles: list[Disturbance]) -> Finding:
    kind = NodeCondition.DEGRADED
    if not troubles:
        return Finding(kind, False, Reason.UNDISTURBED, "The agent alone serves the cards of the node.")
    return Finding(kind, True, troubles[0].reason, " ".join(trouble.message for trouble in troubles))


def _ready(complete: Condition, obstacles: Iterator[tuple[Reason, str]]) -> Finding:
    """The first obstacle, in the order in which a person would clear them."""
    kind = NodeCondition.READY_FOR_POOLING
    if complete.status != TRUE:
        return Finding(kind, False, Reason.INVENTORY_INCOMPLETE, complete.message)
    for reason, message in obstacles:
        return Finding(kind, False, reason, message)
    return Finding(kind, True, Reason.READY, "The cards of the node may join pools.")


def _too_early(seen: Snapshot, readiness: Finding, question: Open | None) -> bool:
    """Whether a new node is about to be ready: the answer is one write, and none before it."""
    new = find(seen.held, NodeCondition.READY_FOR_POOLING) is None
    waiting = question is not None and question.until is not None and seen.now < question.until
    return new and waiting and readiness.reason is Reason.CHECKS_PENDING


def _obstacles(
    seen: Snapshot,
    programs: Standings,
    software: tuple[Finding, Finding],
    troubles: list[Disturbance],
    question: Open | None,
) -> Iterator[tuple[Reason, str]]:
    """Without its agent what the node reports may be old, so that comes first; a rival is removed last. What only takes
    time is told when nothing else is in the way."""
    blocking = [trouble for trouble in troubles if trouble.blocks]
    yield from ((trouble.reason, trouble.message) for trouble in blocking if trouble.reason is Reason.AGENT_NOT_READY)
    for found, reason in zip(software, (Reason.DRIVER_NOT_READY, Reason.TOOLKIT_NOT_READY), strict=True):
        if found.status:
            yield reason, found.message
    if failed := failed_check(seen.state.status, CUDA):
        yield Reason.VALIDATION_FAILED, about_step(failed)
    if stuck := stuck_validator(programs, CUDA):
        yield Reason.VALIDATOR_NOT_PASSED, stuck
    yield from ((trouble.reason, trouble.message) for trouble in blocking)
    if seen.state.status.plugin is None and (rival := programs.get(Operand.NVIDIA_PLUGIN)) is not None:
        message = f"The cards of the node are served by the {rival.operand} pod, so no pool can have them."
        yield Reason.CONFLICTING_DEVICE_PLUGIN, message
    if question is not None:
        yield Reason.CHECKS_PENDING, question.message


def _condition(seen: Snapshot, one: Finding) -> Condition:
    message = one.message[:_LONGEST]
    return condition(seen.held, one.kind.value, one.status, one.reason.value, message, now=seen.now)
