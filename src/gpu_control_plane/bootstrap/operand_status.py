"""Whether an operand of a node works: one whose Pod restarts is not lost, one whose Pod stays away is.

What the conditions of the node last said of an operand, together with what is observed of its Pod now, gives its state:
`TRANSITIONS` is the whole rule, and docs/inventory.md shows it. Times come from the Pods, and what was said is read
from the conditions. So a controller that was down in between comes to the same state.
"""

import enum
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.names import Reason
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.bootstrap.operands import EXPORTERS, HOST_ENGINES, LABELLERS, VALIDATORS, Operand, operand_of
from gpu_control_plane.bootstrap.snapshot import Settings, Snapshot

LOSS_REASONS: Final[Mapping[Operand, Reason]] = {
    Operand.AGENT: Reason.AGENT_NOT_READY,
    **dict.fromkeys((*EXPORTERS, *HOST_ENGINES.values()), Reason.MONITORING_NOT_READY),
    **dict.fromkeys(LABELLERS, Reason.GFD_NOT_READY),
    **dict.fromkeys(VALIDATORS, Reason.VALIDATOR_NOT_PASSED),
}
"""The reason of the condition that says that an operand is lost. Other operands have none, and are never said to be."""

_UNPULLABLE: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


class OperandState(enum.Enum):
    WORKING = "its Pod is ready"
    RESTARTING = "its Pod is not ready, or gone, and not for long: conditions do not change"
    LOST = "its Pod has not been ready, or has been gone, for long: conditions say so"
    RECOVERING = "its Pod is ready again, and not for long: conditions still say that it is lost"
    ABSENT = "it has left the node for good: nothing is expected of it"


class Observation(enum.Enum):
    """What can be seen of an operand. «Long» is `return_after` for a Pod that is ready, else `loss_after`."""

    READY_LONG = "Pod ready for long"
    READY = "Pod ready, not for long"
    NOT_READY = "Pod not ready, or gone, not for long"
    NOT_READY_LONG = "Pod not ready, or gone, for long"
    UNEXPECTED = "no Pod, and none is expected, not for long"
    UNEXPECTED_LONG = "no Pod, and none is expected, for long"
    UNREACHABLE_READY = "the kubelet does not answer; Pod was ready"
    UNREACHABLE = "the kubelet does not answer; Pod was not ready, or is gone"


class Until(enum.Enum):
    """When a state may change although nothing else does."""

    LOSS = "lossAfter"
    RETURN = "returnAfter"


class Transition(msgspec.Struct, frozen=True):
    state: OperandState
    until: Until | None = None


_S, _T = OperandState, Transition
TRANSITIONS: Final[Mapping[Observation, tuple[Transition, Transition]]] = {
    # Observation                    not said to be lost                 said to be lost
    Observation.READY_LONG: (_T(_S.WORKING), _T(_S.WORKING)),
    Observation.READY: (_T(_S.WORKING), _T(_S.RECOVERING, Until.RETURN)),
    Observation.NOT_READY: (_T(_S.RESTARTING, Until.LOSS), _T(_S.LOST)),
    Observation.NOT_READY_LONG: (_T(_S.LOST), _T(_S.LOST)),
    Observation.UNEXPECTED: (_T(_S.RESTARTING, Until.LOSS), _T(_S.LOST, Until.LOSS)),
    Observation.UNEXPECTED_LONG: (_T(_S.ABSENT), _T(_S.ABSENT)),
    Observation.UNREACHABLE_READY: (_T(_S.WORKING), _T(_S.LOST)),
    Observation.UNREACHABLE: (_T(_S.RESTARTING), _T(_S.LOST)),
}
"""The state by what is observed now (row) and by whether the conditions say that the operand is lost (column)."""


class OperandStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An operand of a node that is there, or should be."""

    operand: Operand
    state: OperandState
    pod: Pod | None = None
    since: datetime | None = None
    """Since when its Pod has been ready, not ready or gone, as far as that is known."""
    second_pod: Pod | None = None
    """Another Pod of the same operand that has been ready beside it for `loss_after`."""

    @property
    def works(self) -> bool:
        return self.state is OperandState.WORKING

    @property
    def lost(self) -> bool:
        """Whether conditions say that it is lost."""
        return self.state in (OperandState.LOST, OperandState.RECOVERING)

    @property
    def trouble(self) -> str:
        """What is wrong and what to do, in words that stay the same while a Pod is started again and again: every
        change of a message is a write."""
        if self.pod is None:
            return f"No {self.operand} pod runs on the node."
        where, name = self.pod.metadata.namespace or "default", self.pod.name
        look = f"kubectl -n {where} describe pod {name}"
        statuses = self.pod.status.all_container_statuses
        waiting = {status.state.waiting.reason for status in statuses if status.state.waiting is not None}
        if waiting & _UNPULLABLE:
            why = "cannot get its image"
        elif self.pod.unschedulable:
            why = "cannot be scheduled"
        elif self.pod.crashing:
            why, look = "crashes again and again", f"kubectl -n {where} logs {name} --all-containers --previous"
        else:
            why = "does not become ready"
        return f"The {self.operand} pod {name} {why}. See why: `{look}`."


class OperandStatuses(msgspec.Struct, frozen=True, kw_only=True):
    """All operands of a node that are there, or should be."""

    by_operand: Mapping[Operand, OperandStatus]
    missing: frozenset[Operand] = frozenset()
    """Those without a Pod."""
    again_at: datetime | None = None
    """When one of them may get another state although nothing changes."""

    def get(self, operand: Operand) -> OperandStatus | None:
        return self.by_operand.get(operand)

    def among(self, operands: Iterable[Operand]) -> list[OperandStatus]:
        return [self.by_operand[operand] for operand in operands if operand in self.by_operand]


def operand_statuses(snapshot: Snapshot, settings: Settings) -> OperandStatuses:
    """The state of each operand of the node."""
    pods = _pods_by_operand(snapshot)
    known = snapshot.timers.operands | snapshot.timers.missing_since.keys()
    found: dict[Operand, OperandStatus] = {}
    deadlines: list[datetime] = []
    for operand in Operand:
        pod = pods.get(operand)
        said_lost = _said_lost(snapshot, operand)
        expected = operand in snapshot.expected
        if operand is Operand.AGENT:
            # An agent that was a Pod has not become one that is run by hand because all others are gone, too.
            expected = expected or said_lost or operand in known
        if pod is None and not expected and operand not in known:
            continue
        since = _since(snapshot, operand, pod)
        change = TRANSITIONS[_observe(snapshot, pod, since, settings, expected=expected)][said_lost]
        if change.state is OperandState.ABSENT:
            continue
        if change.until is not None:
            deadlines.append(since + (settings.loss_after if change.until is Until.LOSS else settings.return_after))
        status = OperandStatus(operand=operand, state=change.state, pod=pod, since=since)
        if operand is Operand.AGENT and pod is not None and snapshot.reachable:
            status = _with_second_pod(snapshot, status, pod, settings, deadlines)
        found[operand] = status
    missing = frozenset(operand for operand, status in found.items() if status.pod is None)
    return OperandStatuses(by_operand=found, missing=missing, again_at=min(deadlines, default=None))


def _observe(
    snapshot: Snapshot, pod: Pod | None, since: datetime, settings: Settings, *, expected: bool
) -> Observation:
    ready = pod is not None and pod.ready
    long = snapshot.now >= since + (settings.return_after if ready else settings.loss_after)
    unexpected = pod is None and not expected
    if unexpected and long:
        return Observation.UNEXPECTED_LONG
    if not snapshot.reachable:
        return Observation.UNREACHABLE_READY if ready else Observation.UNREACHABLE
    if ready:
        return Observation.READY_LONG if long else Observation.READY
    if unexpected:
        return Observation.UNEXPECTED
    return Observation.NOT_READY_LONG if long else Observation.NOT_READY


def _said_lost(snapshot: Snapshot, operand: Operand) -> bool:
    """Whether a condition of the node says that the operand is lost."""
    reason = LOSS_REASONS.get(operand)
    return reason is not None and any(held.reason == reason for held in snapshot.conditions)


def _pods_by_operand(snapshot: Snapshot) -> dict[Operand, Pod]:
    """The Pod that counts for each operand: during an update there are two, and a ready one comes first."""
    found: dict[Operand, Pod] = {}
    for pod in sorted(snapshot.pods, key=lambda pod: (not pod.ready, pod.name)):
        operand = operand_of(pod, snapshot.namespace)
        if operand is not None and pod.active:
            found.setdefault(operand, pod)
    return found


def _with_second_pod(
    snapshot: Snapshot, status: OperandStatus, pod: Pod, settings: Settings, deadlines: list[datetime]
) -> OperandStatus:
    """The status with the youngest of the other Pods of the operand that are ready, once both have been for long."""
    others = [one for one in snapshot.pods if one is not pod and one.active and one.ready]
    same = [one for one in others if operand_of(one, snapshot.namespace) is status.operand]
    second = max(same, key=lambda one: one.ready_changed_at or snapshot.now, default=None)
    if second is None:
        return status
    since = second.ready_changed_at
    if since is not None and snapshot.now < since + settings.loss_after:
        deadlines.append(since + settings.loss_after)
        return status
    return msgspec.structs.replace(status, second_pod=second)


def _since(snapshot: Snapshot, operand: Operand, pod: Pod | None) -> datetime:
    if pod is not None:
        return pod.ready_changed_at or snapshot.now
    return snapshot.timers.missing_since.get(operand, snapshot.now)
