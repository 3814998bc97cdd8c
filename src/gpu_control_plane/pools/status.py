"""The status of a pool. Pure: its capacity in, a status out."""

from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.gpupool import GPUPool, PoolCards, PoolNodes, PoolPhase, PoolStatus
from gpu_control_plane.api.names import Annotation, PoolCondition, Reason
from gpu_control_plane.kube.conditions import FALSE, condition, find
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.pools.maintenance import is_overdue, message, progress, serves_meanwhile
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.rules.pool_validation import PoolFault

MAX_BYTES: Final = 16 * 1024
"""The most that a status takes: it is written once a second while cards change, and sent to all who watch."""


class _Verdict(msgspec.Struct, frozen=True):
    """A condition before it is one."""

    status: bool
    reason: Reason
    message: str = ""


def pool_status(
    pool: GPUPool,
    capacity: PoolCapacity,
    fault: PoolFault | None,
    cards: PoolCards | None,
    now: datetime,
    *,
    also: tuple[Condition, ...] = (),
) -> PoolStatus:
    """The status of a pool. Its units add up to the total once every node offers what was ordered.

    A node that cannot carry its order out makes the pool Misconfigured; the other nodes go on serving. `also` are
    conditions about something else than its cards.
    """
    stage = progress(pool, capacity, now)
    allocation, maintenance = stage.allocation, stage.maintenance
    configured = _configured(pool, capacity, fault)
    closed = maintenance is not None and not serves_meanwhile(pool)
    said: list[tuple[PoolCondition, _Verdict]] = [(PoolCondition.CONFIGURED, configured)]
    if maintenance is not None and closed:
        ready = _Verdict(False, Reason.MAINTENANCE, message(maintenance))
    else:
        ready = _ready(pool, capacity, fault, cards)
    said.append((PoolCondition.READY, ready))
    if maintenance is not None:
        reason = Reason.MAINTENANCE_OVERDUE if is_overdue(maintenance, now) else Reason.MAINTENANCE
        said.append((PoolCondition.IN_MAINTENANCE, _Verdict(True, reason, message(maintenance))))
    held, generation = pool.status.conditions, pool.metadata.generation
    return _bounded(
        PoolStatus(
            observed_generation=generation,
            phase=_phase(pool, configured, ready, closed=closed),
            allocation=allocation,
            units=capacity.units,
            capacity=capacity.resources(pool.names_with(allocation)),
            cards=cards,
            nodes=PoolNodes(total=capacity.nodes, ready=capacity.ready, worst=capacity.worst),
            maintenance=maintenance,
            conditions=(
                *(
                    condition(held, kind, each.status, each.reason, each.message, generation=generation, now=now)
                    for kind, each in said
                ),
                *also,
            ),
        )
    )


def awaits_confirmation(pool: GPUPool) -> bool:
    """Whether cards were not partitioned as ordered, and nobody has said since that this is mended."""
    said = find(pool.status.conditions, PoolCondition.CONFIGURED)
    return (
        said is not None
        and said.status == FALSE
        and said.reason == Reason.LAYOUT_MISMATCH
        and Annotation.CONFIRM_LAYOUT not in pool.metadata.annotations
        and pool.status.allocation == pool.spec.allocation.canonical
    )


def _phase(pool: GPUPool, configured: _Verdict, ready: _Verdict, *, closed: bool) -> PoolPhase:
    if pool.deleting:
        return PoolPhase.DELETING
    if not configured.status:
        return PoolPhase.MISCONFIGURED
    if closed:
        return PoolPhase.MAINTENANCE
    return PoolPhase.READY if ready.status else PoolPhase.PENDING


def _configured(pool: GPUPool, capacity: PoolCapacity, fault: PoolFault | None) -> _Verdict:
    if fault is not None:
        return _Verdict(False, fault.reason, fault.message)
    if capacity.problem is not None:
        return _Verdict(False, capacity.problem.reason, capacity.problem.message)
    if awaits_confirmation(pool):
        confirm = f"kubectl annotate gpupool {pool.name} {Annotation.CONFIRM_LAYOUT}=yes"
        return _Verdict(False, Reason.LAYOUT_MISMATCH, f"every node is partitioned as ordered again: `{confirm}`")
    return _Verdict(True, Reason.CONFIGURED)


def _ready(pool: GPUPool, capacity: PoolCapacity, fault: PoolFault | None, cards: PoolCards | None) -> _Verdict:
    total = capacity.units.total
    if pool.deleting:
        return _Verdict(
            False,
            Reason.DELETING,
            f"the pool goes when its cards are free: {counted(capacity.units.used, 'unit')} in use",
        )
    if fault is not None:
        return _Verdict(False, fault.reason, fault.message)
    if total == 0:
        return _Verdict(False, Reason.NO_CARDS, _why_no_cards(pool, cards))
    if capacity.offered == 0:
        return _Verdict(False, Reason.NOT_OFFERED, f"none of {total} units is offered by its node")
    return _Verdict(True, Reason.CARDS_ON_OFFER)


def _why_no_cards(pool: GPUPool, cards: PoolCards | None) -> str:
    """What keeps every card out, and what to do about it."""
    if cards is None:
        return "no card is in the pool"
    if not cards.selected:
        return "no card is in the pool: spec.deviceSelector selects none"
    selected = "1 card is selected" if cards.selected == 1 else f"{cards.selected} cards are selected"
    waiting = {each.reason: each.cards for each in cards.waiting}
    if waiting.keys() == {PendingReason.APPROVAL}:
        advice = f"kubectl annotate gpudevice NAME {Annotation.ASSIGNMENT}={pool.name}"
        return f"no card is in the pool: {selected}, and each waits for an approval: `{advice}`"
    reasons = ", ".join(f"{count} {reason}" for reason, count in waiting.items())
    return f"no card is in the pool: {selected} ({reasons})"


def _bounded(status: PoolStatus) -> PoolStatus:
    """The status without as many of its worst nodes as make it too large."""
    while len(msgspec.json.encode(status)) > MAX_BYTES and status.nodes is not None and status.nodes.worst:
        nodes = msgspec.structs.replace(status.nodes, worst=status.nodes.worst[:-1])
        status = msgspec.structs.replace(status, nodes=nodes)
    return status
