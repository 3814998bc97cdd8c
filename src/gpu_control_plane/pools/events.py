"""Events about cards and pools."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpu_control_plane.api.gpudevice import Change, DeviceState, GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState, NodePools, PendingCard
from gpu_control_plane.api.gpupool import GPUPool, PoolPhase, PoolStatus
from gpu_control_plane.api.names import DeviceCondition, EventReason, PoolCondition, Reason
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.events import EventRecorder
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.pools.burnin import PASSED
from gpu_control_plane.pools.decide import CardPlan
from gpu_control_plane.pools.explain.explanation import Explanation
from gpu_control_plane.pools.pending_reasons import PendingReason

_DECISIONS: Final = frozenset({PendingReason.APPROVAL, PendingReason.HELD, PendingReason.NO_POOL})
"""What a card waits for while a person has not decided about it."""


def record_cards(events: EventRecorder, plans: Sequence[CardPlan], state: GPUNodeState | None) -> None:
    """Write what has just changed for cards of a node, compared with their status before."""
    _record_changes(events, plans, state)
    for plan in plans:
        _record_card(events, plan)


def _record_changes(events: EventRecorder, plans: Sequence[CardPlan], state: GPUNodeState | None) -> None:
    """Cards that joined or left a pool. Several of one node have one Event, on the node's object: a fleet that is
    pooled must not become a storm of Events. Each card has its own history."""
    changes: dict[tuple[EventReason, str], list[CardPlan]] = {}
    for plan in plans:
        if plan.change is not None:
            reason = EventReason.DEVICE_ASSIGNED if plan.pool else EventReason.DEVICE_RELEASED
            changes.setdefault((reason, f"{plan.change.what}: {plan.change.why}"), []).append(plan)
    for (reason, note), concerned in changes.items():
        if len(concerned) == 1 or state is None:
            for plan in concerned:
                events.normal(plan.device, reason, note, action="Assign")
        else:
            addresses = ", ".join(plan.device.spec.pci_address for plan in concerned)
            events.normal(
                state, reason, f"{len(concerned)} cards {note[0].lower()}{note[1:]}: {addresses}", action="Assign"
            )


def _record_card(events: EventRecorder, plan: CardPlan) -> None:
    device, before = plan.device, plan.device.status
    if plan.tested is not None:
        _record_burn_in(events, device, plan.tested)
    if plan.state is DeviceState.FAULTED and before.state is not DeviceState.FAULTED:
        health = find(before.conditions, DeviceCondition.HEALTHY)
        events.warning(device, EventReason.DEVICE_FAULTED, health.message if health else "the card has a fault")
    if before.state is DeviceState.FAULTED and plan.state is not DeviceState.FAULTED:
        events.normal(device, EventReason.DEVICE_RECOVERED, "the card works again")
    for request in plan.ignored:
        if request.sentence not in (before.message or ""):
            events.warning(device, request.reason, request.sentence, action="Approve")


def record_pool(events: EventRecorder, pool: GPUPool, status: PoolStatus) -> None:
    if pool.status.phase != status.phase:
        why = next((condition.message for condition in status.conditions if condition.message), "")
        note = f"{pool.status.phase or 'new'} → {status.phase}" + (f": {why}" if why else "")
        write = events.warning if status.phase is PoolPhase.MISCONFIGURED else events.normal
        write(pool, EventReason.POOL_PHASE_CHANGED, note)
    if (stage := _maintenance_note(pool, status)) is not None:
        events.normal(pool, EventReason.POOL_MAINTENANCE, stage, action="Maintain")
    if _is_overdue(status.conditions) and not _is_overdue(pool.status.conditions):
        held = find(status.conditions, PoolCondition.IN_MAINTENANCE)
        note = f"it takes longer than {pool.spec.maintenance.deadline}: {held.message if held else ''}"
        events.warning(pool, EventReason.POOL_MAINTENANCE_OVERDUE, note, action="Maintain")


def _maintenance_note(pool: GPUPool, status: PoolStatus) -> str | None:
    before, now = pool.status.maintenance, status.maintenance
    if before is None and now is not None:
        return f"begins: {now.reason}; pods that run go on"
    if before is not None and pool.status.allocation != status.allocation:
        return f"no pod is in the way any more: {before.reason}"
    if before is not None and now is None:
        return f"ended: the cards are divided as {status.allocation}"
    return None


def _is_overdue(conditions: Iterable[Condition]) -> bool:
    held = find(conditions, PoolCondition.IN_MAINTENANCE)
    return held is not None and held.reason == Reason.MAINTENANCE_OVERDUE


def record_pending(events: EventRecorder, pod: Pod, found: Explanation) -> None:
    """Tell a Pod why it gets no card."""
    events.warning(pod, EventReason.WAITING_FOR_CARDS, found.note, action=found.action)


def record_expired(events: EventRecorder, pool: GPUPool, pod: Pod) -> None:
    """Tell a Pod that nothing is reserved for it any more."""
    note = (
        f"units of the GPU pool {pool.name} were reserved for {pool.spec.scheduling.reservation_ttl}, and others may "
        "have them now, since the pod did not start. Its other Events say what it lacks; as soon as it has that, it "
        "gets units that are free"
    )
    events.warning(pod, EventReason.RESERVATION_EXPIRED, note, action="Reserve")


def record_node(events: EventRecorder, state: GPUNodeState, pools: NodePools) -> None:
    """Tell that all cards of a node wait for a person's decision, when that begins."""
    waiting = _waits_for_decision(pools)
    if not waiting or (state.status.pools is not None and _waits_for_decision(state.status.pools)):
        return
    reasons = sorted({PendingReason(card.reason).because for card in waiting if card.reason})
    note = (
        f"None of the node's cards is in a pool: {'; '.join(reasons)}. Approve them, or make a pool that selects them."
    )
    events.warning(state, EventReason.CARDS_WITHOUT_POOL, note, action="Assign")


def _waits_for_decision(pools: NodePools) -> list[PendingCard]:
    """The cards about which a person has to decide, on a node of which no card is in a pool."""
    if pools.assigned:
        return []
    return [card for card in pools.pending if card.reason in _DECISIONS]


def _record_burn_in(events: EventRecorder, device: GPUDevice, test: Change) -> None:
    note = f"{test.what}. {test.why or ''}".strip()
    if test.what == PASSED:
        events.normal(device, EventReason.BURN_IN_PASSED, note, action="BurnIn")
    else:
        events.warning(device, EventReason.BURN_IN_FAILED, note, action="BurnIn")
