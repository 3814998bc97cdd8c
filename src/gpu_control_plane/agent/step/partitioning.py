"""Which cards have to be partitioned anew by MIG, and what came of the last attempts. Pure.

An attempt is made when something it depends on has changed, and again after a while if it could not be finished: the
same attempt at once would end the same way.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final

import msgspec

from gpu_control_plane.agent.hardware_snapshot import ObservedCard
from gpu_control_plane.agent.mig.apply import Outcome, PartitionTask, Result
from gpu_control_plane.agent.mig.units import slot_of
from gpu_control_plane.agent.units import CardID, Unit
from gpu_control_plane.api.allocation import MIG, Mode
from gpu_control_plane.api.gpunodestate import OrderProblem, ProblemReason
from gpu_control_plane.rules.mig_layout import Geometry

RETRY_SECONDS: Final = 10.0
"""Time until a card is tried again that the driver, or a process outside of any pod, did not let us partition."""
_LONGEST_MESSAGE: Final = 1024
"""Characters that the API server accepts in a problem's message; the names of many pods may make it longer."""
_ADVERTISED: Final = "pods that may still be given it"
_PROBLEMS: Final = {
    Result.MISCONFIGURED: ProblemReason.MISCONFIGURED,
    Result.WAITING: ProblemReason.WAITING,
    Result.FAILED: ProblemReason.FAILED,
}


class PartitionAttempt(msgspec.Struct, frozen=True):
    """What was last tried on a card, and what came of it."""

    task: PartitionTask
    outcome: Outcome
    at: float

    @property
    def unfinished(self) -> bool:
        return self.outcome.result in (Result.WAITING, Result.FAILED)


type Attempts = Mapping[CardID, PartitionAttempt]


def recorded(
    attempts: Attempts, done: Iterable[tuple[PartitionTask, Outcome]], now: float
) -> dict[CardID, PartitionAttempt]:
    """The attempts with those just made. A card on which the driver failed is as it was, and goes on advertising what
    it advertised before."""
    known = dict(attempts)
    for task, outcome in done:
        before = known.get(task.card)
        if outcome.result is Result.FAILED and before is not None:
            kept = msgspec.structs.replace(outcome, wanted=before.outcome.wanted)
        else:
            kept = outcome
        known[task.card] = PartitionAttempt(task, kept, now)
    return known


def is_due(task: PartitionTask, attempts: Attempts, now: float) -> bool:
    """Whether to try it now."""
    last = attempts.get(task.card)
    if last is None or last.task != task:
        return True
    return last.unfinished and now >= last.at + RETRY_SECONDS


def partition_task(
    target: MIG | None, card: ObservedCard, advertised: Set[Unit], held: Mapping[Unit, str]
) -> PartitionTask:
    """What it takes to partition a card. Instances that pods hold, or that the kubelet may still allocate, are
    protected."""
    of_card = [unit for unit in advertised | held.keys() if unit.card == card.id]
    holders = {slot: held.get(unit, _ADVERTISED) for unit in of_card if (slot := slot_of(unit)) is not None}
    whole = sorted(held.get(unit, _ADVERTISED) for unit in of_card if unit.mode is not Mode.MIG)
    return PartitionTask(
        card=card.id,
        address=card.address,
        target=target,
        instances=card.instances,
        mig_enabled=card.mig_enabled,
        holders=tuple(sorted(holders.items())),
        holder=whole[0] if whole else None,
    )


def geometries(attempts: Attempts) -> dict[CardID, Geometry]:
    """Which instances each partitioned card is to advertise."""
    return {card: attempt.outcome.wanted for card, attempt in attempts.items()}


def partition_problems(attempts: Attempts) -> Iterator[OrderProblem]:
    for card, attempt in sorted(attempts.items()):
        reason = _PROBLEMS.get(attempt.outcome.result)
        if reason is not None:
            message = (attempt.outcome.reason or "")[:_LONGEST_MESSAGE]
            yield OrderProblem(inventory_id=card, reason=reason, message=message)


def retry_after(attempts: Attempts) -> float | None:
    """Seconds until the next attempt on a card that could not be finished."""
    return RETRY_SECONDS if any(attempt.unfinished for attempt in attempts.values()) else None
