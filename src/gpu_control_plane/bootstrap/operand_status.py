"""Whether a program of a node works, with patience: a pod that restarts is not lost, one that stays away is.

Times come from the pods themselves, so that a controller that was down meanwhile comes to the same end. What was said
to be lost stays so until it has worked for a while; that is read off the conditions, not remembered.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.names import Reason
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.bootstrap.operands import EXPORTERS, HOST_ENGINES, LABELLERS, VALIDATORS, Operand, operand_of
from gpu_control_plane.bootstrap.snapshot import Settings, Snapshot

MARKS: Final[Mapping[Operand, Reason]] = {
    Operand.AGENT: Reason.AGENT_NOT_READY,
    **dict.fromkeys((*EXPORTERS, *HOST_ENGINES.values()), Reason.MONITORING_NOT_READY),
    **dict.fromkeys(LABELLERS, Reason.GFD_NOT_READY),
    **dict.fromkeys(VALIDATORS, Reason.VALIDATOR_NOT_PASSED),
}
"""The reason in a condition by which it can be seen that the loss of a program has been told."""

_UNPULLABLE: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a program of a node is doing."""

    operand: Operand
    pod: Pod | None = None
    lost: bool = False
    """Away for so long that conditions say so."""
    since: datetime | None = None
    """Since when it has been as it is, as far as that is known."""
    twin: Pod | None = None
    """Another pod of the same program that has worked beside it for a while."""

    @property
    def works(self) -> bool:
        return self.pod is not None and self.pod.ready and not self.lost

    @property
    def trouble(self) -> str:
        """What is wrong, what to do, and nothing that changes from one try to the next."""
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


class Standings(msgspec.Struct, frozen=True, kw_only=True):
    """All programs of a node that are there, or should be."""

    of: Mapping[Operand, Standing]
    doubts: frozenset[str] = frozenset()
    again_at: datetime | None = None
    """When one of them may count differently although nothing changes."""

    def get(self, operand: Operand) -> Standing | None:
        return self.of.get(operand)

    def among(self, operands: Iterable[Operand]) -> list[Standing]:
        return [self.of[operand] for operand in operands if operand in self.of]

    def lost(self, operand: Operand) -> bool:
        held = self.of.get(operand)
        return held is not None and held.lost


def standings(seen: Snapshot, settings: Settings) -> Standings:
    """How each program of the node stands."""
    pods = _by_operand(seen.pods)
    known = seen.remembered.had | {operand for operand in Operand if _gone(operand) in seen.remembered.noticed}
    found: dict[Operand, Standing] = {}
    doubts: set[str] = set()
    deadlines: list[datetime] = []
    for operand in Operand:
        pod, missed = pods.get(operand), operand in seen.expected
        told = operand in MARKS and any(held.reason == MARKS[operand] for held in seen.held)
        if operand is Operand.AGENT:
            # An agent that was a pod does not become something else because every other is gone, too.
            missed = missed or told or operand in known
        if pod is None and not missed and operand not in known:
            continue
        since = _since(seen, operand, pod)
        back = pod is not None and pod.ready
        limit = since + (settings.return_after if back else settings.loss_after)
        passed = seen.now >= limit
        if pod is None and not missed and passed:
            continue
        if pod is None:
            doubts.add(_gone(operand))
        if not is_reachable(seen):
            found[operand] = Standing(operand=operand, pod=pod, lost=told, since=since)
            continue
        lost = (told and not passed) if back else (told or passed)
        twin = _twin(seen, pod) if operand is Operand.AGENT else None
        since_twin = twin.ready_changed_at if twin is not None else None
        together = since_twin + settings.loss_after if since_twin is not None else seen.now
        settled = twin if seen.now >= together else None
        found[operand] = Standing(operand=operand, pod=pod, lost=lost, since=since, twin=settled)
        leaves = pod is None and not missed
        if not passed and (leaves or (lost if back else not lost)):
            deadlines.append(limit)
        if twin is not None and settled is None:
            deadlines.append(together)
    return Standings(of=found, doubts=frozenset(doubts), again_at=min(deadlines, default=None))


def _by_operand(pods: Iterable[Pod]) -> dict[Operand, Pod]:
    """The pod that counts of each program: during an update there are two."""
    found: dict[Operand, Pod] = {}
    for pod in sorted(pods, key=lambda pod: (not pod.ready, pod.name)):
        operand = operand_of(pod)
        if operand is not None and pod.active:
            found.setdefault(operand, pod)
    return found


def _twin(seen: Snapshot, pod: Pod | None) -> Pod | None:
    """The youngest of the pods that do what this one does, and work, too."""
    working = (one for one in seen.pods if one.active and one.ready)
    others = (one for one in working if pod is not None and operand_of(one) is operand_of(pod) and one is not pod)
    return max(others, key=lambda one: one.ready_changed_at or seen.now, default=None)


def _since(seen: Snapshot, operand: Operand, pod: Pod | None) -> datetime:
    if pod is not None:
        return pod.ready_changed_at or seen.now
    return seen.remembered.noticed.get(_gone(operand), seen.now)


def _gone(operand: Operand) -> str:
    return f"gone: {operand}"


def is_reachable(seen: Snapshot) -> bool:
    """While its kubelet does not answer, every pod of a node looks as if it were not ready."""
    return seen.node is None or seen.node.ready
