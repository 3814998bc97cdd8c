"""What should happen to the cards of one node. Pure: a snapshot in, a plan out.

A card's way is: approved (the annotation) → claimed (`status.poolRef`) → ordered (the node's `spec.assignments`) →
offered by the agent. It goes back in the opposite order: the order is withdrawn, the agent drains the card, and the
claim ends only when the agent reports that the card is free. A claim is written before the order it allows, and a card
can be claimed only while it is free, so a card is in at most one pool however often the controller dies in between.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from gpu_control_plane.api.gpudevice import Change, DeviceState, GPUDevice, Reservation
from gpu_control_plane.api.gpunodestate import (
    AssignedCard,
    Assignment,
    GPUNodeState,
    NodePools,
    PendingCard,
)
from gpu_control_plane.api.names import Annotation, DeviceCondition, NodeCondition
from gpu_control_plane.api.scheduling import NUMA
from gpu_control_plane.kube.conditions import find, is_true
from gpu_control_plane.kube.sentences import one_line
from gpu_control_plane.pools.burnin import burn_in_pending, trimmed_history, unrecorded_burn_in
from gpu_control_plane.pools.desired_pool import (
    DesiredPool,
    NodeSelection,
    desired_pools,
    is_approval_withdrawn,
    is_faulted,
    suits,
)
from gpu_control_plane.pools.ignored_requests import IgnoredRequest, ignored_requests
from gpu_control_plane.pools.maintenance import ordered_allocation
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.pools.snapshot import Snapshot, claim_of
from gpu_control_plane.pools.units import card_resources
from gpu_control_plane.rules.node_readiness import contradicts_readiness

WHO = "gpu-pools"
_LONGEST_WHAT, _LONGEST_WHO, _LONGEST_WHY = 128, 253, 512


class CardPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What should be written about one card."""

    device: GPUDevice
    pool: str | None
    """The pool that holds the card afterwards: its claim."""
    state: DeviceState
    ordered: bool = False
    pending: PendingReason | None = None
    approve: str | None = None
    """Approve the card for this pool, which approves cards by itself."""
    withdraw: bool = False
    """Take the approval off: its pool is being deleted."""
    take_reason: bool = False
    """Take a person's reason off: it is in the history with this plan, or nothing is left that it could be for."""
    change: Change | None = None
    reservation: Reservation | None = None
    tested: Change | None = None
    """A burn-in that has ended and is to be recorded."""
    divided: Change | None = None
    """The card is about to be divided anew."""
    ignored: tuple[IgnoredRequest, ...] = ()
    """What people ask of the card and is not done."""

    @property
    def history(self) -> tuple[Change, ...]:
        """The card's history with what happens now."""
        new = tuple(change for change in (self.change, self.divided, self.tested) if change)
        return trimmed_history(self.device, (*new, *self.device.status.history))


type SelectedCards = Mapping[str, Counter[PendingReason | None]]
"""The cards that each pool selects, by the reason why they are not in the pool; None for those that are."""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What should be written about a node and its cards."""

    cards: tuple[CardPlan, ...]
    assignments: tuple[Assignment, ...]
    pools: NodePools
    complete: bool
    """Whether all cards of the node are known; until then its lists would be written again with every card."""
    selected: SelectedCards


def decide(snapshot: Snapshot) -> NodePlan:
    """The plan for a node. Deciding again after any part of it was carried out leads to the same end."""
    cards = _plannable(snapshot)
    selection = NodeSelection(snapshot)
    desired = desired_pools(snapshot, cards, selection)
    plans = tuple(
        msgspec.structs.replace(
            _reserved(snapshot, plan),
            ignored=ignored_requests(snapshot, plan.device, desired[plan.device.name]),
            take_reason=_is_reason_spent(plan, desired[plan.device.name]),
        )
        for plan in (_plan(snapshot, device, desired[device.name]) for device in cards)
    )
    return NodePlan(
        cards=plans,
        assignments=tuple(order for plan in plans if (order := _assignment(snapshot, plan)) is not None),
        pools=NodePools(
            pending=tuple(
                PendingCard(inventory_id=plan.device.name, reason=plan.pending) for plan in plans if plan.pool is None
            ),
            assigned=tuple(
                AssignedCard(inventory_id=plan.device.name, pool=plan.pool) for plan in plans if plan.pool is not None
            ),
        ),
        complete=_is_inventoried(snapshot, len(cards)),
        selected=_selected(((plan.device, DesiredPool(plan.pool, plan.pending)) for plan in plans), selection),
    )


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """Where the cards of a node end."""

    ends: dict[str, DesiredPool]
    """By the name of the GPUDevice: in a pool, or in none and why."""
    selected: SelectedCards


def outlook(snapshot: Snapshot) -> Outlook:
    """Where each card of the node ends if nothing changes but that pods in its way end: for whoever wants to know what
    a change leads to before making it."""
    cards = _plannable(snapshot)
    selection = NodeSelection(snapshot)
    desired = desired_pools(snapshot, cards, selection)
    ends = dict.fromkeys((device.name for device in snapshot.devices), DesiredPool(None, PendingReason.PROBE))
    ends |= {device.name: _end(snapshot, device, desired[device.name]) for device in cards}
    return Outlook(ends=ends, selected=_selected(((card, ends[card.name]) for card in cards), selection))


def _end(snapshot: Snapshot, device: GPUDevice, desired: DesiredPool) -> DesiredPool:
    if desired.pool is None:
        return desired
    stays = claim_of(device) == desired.pool
    kept_out = burn_in_pending(device) if stays else _kept_out(snapshot, device)
    return DesiredPool(None, kept_out) if kept_out else desired


def _is_inventoried(snapshot: Snapshot, cards: int) -> bool:
    """Whether inventory has counted the cards of the node, and none of them is missing here."""
    count = snapshot.state.status.device_count if snapshot.state is not None else None
    return count is not None and count <= cards


def _plan(snapshot: Snapshot, device: GPUDevice, desired: DesiredPool) -> CardPlan:
    """From where the card is to where it should be, one safe step."""
    claim = claim_of(device)
    if claim is not None and (untested := burn_in_pending(device)):
        return _leave(
            snapshot, device, claim, DesiredPool(None, untested)
        )  # another card at the approved one's address
    if claim is not None and claim == desired.pool:
        ordered = _ordered(snapshot, device, claim) is not None or _may_issue(snapshot)
        return msgspec.structs.replace(
            _card_plan(device, claim, ordered=ordered),
            approve=claim if desired.approve else None,
            divided=_divided_anew(snapshot, device, claim) if ordered else None,
        )
    if claim is not None:
        return _leave(snapshot, device, claim, desired)
    if desired.pool is None:
        waiting = _card_plan(device, None, pending=desired.pending)
        return msgspec.structs.replace(waiting, withdraw=is_approval_withdrawn(snapshot, device))
    return _join(snapshot, device, desired)


def _join(snapshot: Snapshot, device: GPUDevice, desired: DesiredPool) -> CardPlan:
    pool = desired.pool
    if kept_out := _kept_out(snapshot, device):
        return _card_plan(device, None, pending=kept_out)
    if not _free(snapshot, device) and _ordered(snapshot, device, pool) is None:
        return _card_plan(device, None, pending=PendingReason.DRAIN)
    how = "approved by the pool's own rules" if desired.approve else _reason(device) or "approved by annotation"
    who = WHO if desired.approve else _approver(device)
    change = Change(what=f"Assigned to {pool}", who=who, when=snapshot.now, why=how)
    plan = _card_plan(device, pool, ordered=True, change=change)
    return msgspec.structs.replace(plan, approve=pool if desired.approve else None)


def _kept_out(snapshot: Snapshot, device: GPUDevice) -> PendingReason | None:
    """Why a card that is free cannot join any pool now."""
    if find(device.status.conditions, DeviceCondition.HEALTHY) is None:
        return PendingReason.PROBE
    if is_faulted(device):
        return PendingReason.HEALTH
    if untested := burn_in_pending(device):
        return untested
    if not _may_issue(snapshot):
        written = _written_reason(snapshot, device) if _is_readiness_overtaken(snapshot) else None
        return written or PendingReason.NODE_NOT_READY
    return None


def _approver(device: GPUDevice) -> str:
    """The user who changed the approval last, as the webhook recorded it."""
    return device.metadata.annotations.get(Annotation.APPROVED_BY, "")[:_LONGEST_WHO] or WHO


def _reason(device: GPUDevice) -> str:
    """The reason that a person gave, as one line of plain text."""
    text = device.metadata.annotations.get(Annotation.REASON, "")
    return one_line(text[: 4 * _LONGEST_WHY])[:_LONGEST_WHY]


def _is_reason_spent(plan: CardPlan, desired: DesiredPool) -> bool:
    """Whether the card is where people want it: what their reason was for has happened."""
    device = plan.device
    if Annotation.REASON not in device.metadata.annotations or plan.pool != desired.pool:
        return False
    refused = plan.pool is None and bool(device.metadata.annotations.get(Annotation.ASSIGNMENT)) and not device.ignored
    return not refused or plan.withdraw


def _divided_anew(snapshot: Snapshot, device: GPUDevice, claim: str) -> Change | None:
    """The entry for the card's history when maintenance gives it another order, once."""
    pool = snapshot.pools[claim]
    held = _ordered(snapshot, device, claim)
    allocation = ordered_allocation(pool, snapshot.node, held)
    maintenance = pool.status.maintenance
    if maintenance is None or allocation is None or (held is not None and held.allocation == allocation):
        return None
    what = f"Divided as {allocation}"[:_LONGEST_WHAT]
    if any(change.what == what and change.when >= maintenance.since for change in device.status.history):
        return None
    return Change(
        what=what, who=WHO, when=snapshot.now, why=f"Maintenance of the pool {claim}: {maintenance.reason}"[:512]
    )


def _leave(snapshot: Snapshot, device: GPUDevice, claim: str, desired: DesiredPool) -> CardPlan:
    """Withdraw the order, and end the claim once the agent reports that no pod has the card any more."""
    if not _released(snapshot, device):
        draining = _card_plan(device, claim)
        if draining.state is DeviceState.ASSIGNED:
            return msgspec.structs.replace(draining, state=DeviceState.DRAINING)
        return draining
    pending = desired.pending or PendingReason.DRAIN
    approved = device.metadata.annotations.get(Annotation.ASSIGNMENT)
    who = _approver(device) if approved != claim else WHO
    why = f"approved for {approved}" if desired.pool else pending.because
    if (reason := _reason(device)) and (approved != claim or device.ignored):
        why = reason if approved != claim else f"{why}: {reason}"[:_LONGEST_WHY]
    change = Change(what=f"Released from {claim}", who=who, when=snapshot.now, why=why)
    return _card_plan(device, None, pending=pending, change=change)


def _card_plan(
    device: GPUDevice,
    pool: str | None,
    *,
    ordered: bool = False,
    pending: PendingReason | None = None,
    change: Change | None = None,
) -> CardPlan:
    state = DeviceState.ASSIGNED if pool else DeviceState.UNASSIGNED
    if is_faulted(device):
        state = DeviceState.FAULTED
    return CardPlan(
        device=device,
        pool=pool,
        state=state,
        ordered=ordered and pool is not None,
        pending=pending,
        change=change,
        tested=unrecorded_burn_in(device),
    )


def _reserved(snapshot: Snapshot, plan: CardPlan) -> CardPlan:
    """The plan with what is promised to a pod, for a card that a pod could be given."""
    reservation = snapshot.reserved.get(plan.device.name)
    if reservation is None or not plan.ordered or plan.state is not DeviceState.ASSIGNED:
        return plan
    return msgspec.structs.replace(plan, state=DeviceState.RESERVED, reservation=reservation)


def _assignment(snapshot: Snapshot, plan: CardPlan) -> Assignment | None:
    """The order for a card. A pool whose status does not say yet how its cards are divided gives no new orders: its
    spec may have changed before anybody has seen it, and then nobody would know what the nodes were told."""
    if plan.pool is None or not plan.ordered:
        return None
    pool = snapshot.pools[plan.pool]
    held = _ordered(snapshot, plan.device, plan.pool)
    if pool.status.allocation is None:
        return held
    allocation = ordered_allocation(pool, snapshot.node, held)
    if allocation is None:
        return None
    resources = card_resources(pool, allocation, plan.device.status.hardware)
    if not resources:
        return None
    return Assignment(
        inventory_id=plan.device.name,
        pool=pool.name,
        resources=resources,
        allocation=allocation,
        numa=NUMA.IGNORED if pool.spec.scheduling.numa is NUMA.IGNORED else None,
    )


def _selected(
    placed: Iterable[tuple[GPUDevice, DesiredPool]], selection: NodeSelection
) -> dict[str, Counter[PendingReason | None]]:
    """Counts the cards that pools select, by where each card is."""
    found: dict[str, Counter[PendingReason | None]] = defaultdict(Counter)
    for device, place in placed:
        approved = device.metadata.annotations.get(Annotation.ASSIGNMENT)
        for pool in selection.pools(device):
            reason: PendingReason | None
            if place.pool == pool.name:
                reason = None
            elif not suits(pool, device):
                reason = PendingReason.MODE_UNSUPPORTED
            elif place.pool is not None or approved not in (None, "", pool.name):
                reason = PendingReason.IN_OTHER_POOL
            else:
                reason = place.pending
            found[pool.name][reason] += 1
    return found


def _plannable(snapshot: Snapshot) -> tuple[GPUDevice, ...]:
    """The cards to plan for, in the order of their addresses.

    New ones are left alone until the hardware and the health of all of them and the readiness of their node are known:
    each of these changes the plan, each plan is a write, and an order for all cards costs no more than for one. A card
    with the label ignore is not waited for, nor one that inventory knows from the bus alone.
    """
    state = snapshot.state
    bus_only = {card.inventory_id for card in state.status.devices if card.product is None} if state else set()
    settled = (
        state is not None
        and not _is_readiness_overtaken(snapshot)
        and find(state.status.conditions, NodeCondition.READY_FOR_POOLING) is not None
        and (state.status.device_count or 0) <= len(snapshot.devices)
        and all(
            device.status.state is not None
            or _described(device)
            or device.ignored
            or (device.name in bus_only and device.status.hardware is None)
            for device in snapshot.devices
        )
    )
    cards = (device for device in snapshot.devices if device.status.state is not None or settled)
    return tuple(sorted(cards, key=lambda device: device.spec.pci_address))


def _described(device: GPUDevice) -> bool:
    health = find(device.status.conditions, DeviceCondition.HEALTHY)
    return device.status.hardware is not None and health is not None


def _may_issue(snapshot: Snapshot) -> bool:
    """Whether new cards of the node may be ordered: the Node exists and is ready, and that is up to date."""
    ready = snapshot.labels is not None and _is_ready(snapshot.state)
    return ready and not _is_readiness_overtaken(snapshot)


def _is_readiness_overtaken(snapshot: Snapshot) -> bool:
    """Whether the condition ReadyForPooling is older than the report, or than the rest of the status. Bootstrap is
    about to write it anew: until then no card is ordered, and no pending reason is written that would change again."""
    state = snapshot.state
    if state is None or not _is_ready(state):
        return False
    return not snapshot.report_observed or contradicts_readiness(state.status)


def _is_ready(state: GPUNodeState | None) -> bool:
    return state is not None and is_true(state.status.conditions, NodeCondition.READY_FOR_POOLING)


def _written_reason(snapshot: Snapshot, device: GPUDevice) -> PendingReason | None:
    """The pending reason of the card that the status has."""
    pools = snapshot.state.status.pools if snapshot.state is not None else None
    pending = pools.pending if pools is not None else ()
    return next(
        (PendingReason(card.reason) for card in pending if card.inventory_id == device.name and card.reason), None
    )


def _ordered(snapshot: Snapshot, device: GPUDevice, pool: str | None) -> Assignment | None:
    """The order that the node has for the card in this pool."""
    orders = snapshot.state.spec.assignments if snapshot.state else ()
    return next((order for order in orders if order.inventory_id == device.name and order.pool == pool), None)


def _free(snapshot: Snapshot, device: GPUDevice) -> bool:
    """Whether the card is neither ordered nor offered."""
    state = snapshot.state
    if state is None:
        return True
    ordered = any(order.inventory_id == device.name for order in state.spec.assignments)
    return not ordered and not _offered(state, device)


def _released(snapshot: Snapshot, device: GPUDevice) -> bool:
    """Whether the agent, having read that the card is no longer ordered, reports that no pod has it."""
    state = snapshot.state
    if state is None or snapshot.labels is None:
        return True
    if not _free(snapshot, device):
        return False
    if state.status.plugin is None:
        return not device.status.used_by
    return state.status.plugin.observed_generation >= state.metadata.generation


def _offered(state: GPUNodeState, device: GPUDevice) -> bool:
    plugin = state.status.plugin
    return plugin is not None and any(device.name in resource.inventory_ids for resource in plugin.resources)
