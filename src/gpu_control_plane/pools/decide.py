"""What should happen to the cards of one node. Pure: a snapshot in, a plan out.

A card's way is: approved (the annotation) → claimed (`status.poolRef`) → ordered (the node's assignments) → offered by
the agent. It goes back in the opposite order: the order is withdrawn, the agent drains the card, and only when the
agent says that it is free does the claim end. A claim is written before the order it allows, and a card can be claimed
only while it is free, so a card is in at most one pool however often the controller dies in between.
"""

import msgspec

from gpu_control_plane.api.allocation import Allocation
from gpu_control_plane.api.gpudevice import Change, DeviceState, GPUDevice
from gpu_control_plane.api.gpunodestate import (
    AssignedCard,
    Assignment,
    GPUNodeState,
    NodePools,
    OfferedResource,
    PendingCard,
)
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import DeviceCondition, NodeCondition
from gpu_control_plane.kube.conditions import FALSE, find, is_true
from gpu_control_plane.pools.burnin import remembered, unrecorded, untested
from gpu_control_plane.pools.snapshot import Snapshot, claim_of
from gpu_control_plane.pools.wishes import Wish, wishes, withdrawn
from gpu_control_plane.pools.words import Waits
from gpu_control_plane.rules.node_readiness import contradicts_readiness

WHO = "gpu-pools"


class CardPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where one card should stand."""

    device: GPUDevice
    pool: str | None
    """The pool that holds the card: its claim."""
    state: DeviceState
    ordered: bool = False
    waits: Waits | None = None
    approve: str | None = None
    """Approve the card for this pool, on behalf of a pool that approves by itself."""
    withdraw: bool = False
    """Take the approval off: its pool is being deleted."""
    change: Change | None = None
    tested: Change | None = None
    """A burn-in that has ended and is to be recorded."""

    @property
    def history(self) -> tuple[Change, ...]:
        """The card's history with what happens now."""
        new = tuple(change for change in (self.change, self.tested) if change)
        return remembered(self.device, (*new, *self.device.status.history))


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node's cards should stand, and what the node is told."""

    cards: tuple[CardPlan, ...]
    assignments: tuple[Assignment, ...]
    pools: NodePools
    complete: bool
    """Whether all cards of the node are known; until then its lists would be written again with every card."""


def decide(snapshot: Snapshot) -> NodePlan:
    """The plan for a node. Deciding again after any part of it was carried out leads to the same end."""
    cards = _introduced(snapshot)
    wanted = wishes(snapshot, cards)
    plans = tuple(_plan(snapshot, device, wanted[device.name]) for device in cards)
    return NodePlan(
        cards=plans,
        assignments=tuple(_assignment(snapshot.pools[plan.pool], plan) for plan in plans if plan.pool and plan.ordered),
        pools=NodePools(
            pending=tuple(
                PendingCard(inventory_id=plan.device.name, reason=plan.waits) for plan in plans if plan.pool is None
            ),
            assigned=tuple(
                AssignedCard(inventory_id=plan.device.name, pool=plan.pool) for plan in plans if plan.pool is not None
            ),
        ),
        complete=snapshot.state is not None and (snapshot.state.status.device_count or 0) <= len(cards),
    )


def _plan(snapshot: Snapshot, device: GPUDevice, wish: Wish) -> CardPlan:
    """From where the card is to where it should be, one safe step."""
    claim = claim_of(device)
    if claim is not None and (untried := untested(device)):
        return _leave(snapshot, device, claim, Wish(None, untried))  # another card, in the place of the one approved
    if claim is not None and claim == wish.pool:
        ordered = _ordered(snapshot, device, claim) or _may_issue(snapshot)
        return msgspec.structs.replace(_stand(device, claim, ordered=ordered), approve=claim if wish.approve else None)
    if claim is not None:
        return _leave(snapshot, device, claim, wish)
    if wish.pool is None:
        waiting = _stand(device, None, waits=wish.waits)
        return msgspec.structs.replace(waiting, withdraw=withdrawn(snapshot, device))
    return _join(snapshot, device, wish)


def _join(snapshot: Snapshot, device: GPUDevice, wish: Wish) -> CardPlan:
    pool = wish.pool
    if find(device.status.conditions, DeviceCondition.HEALTHY) is None:
        return _stand(device, None, waits=Waits.PROBE)
    if _faulted(device):
        return _stand(device, None, waits=Waits.HEALTH)
    if waits := untested(device):
        return _stand(device, None, waits=waits)
    if not _may_issue(snapshot):
        told = _told(snapshot, device) if _overtaken(snapshot) else None
        return _stand(device, None, waits=told or Waits.NODE_NOT_READY)
    if not _free(snapshot, device) and not _ordered(snapshot, device, pool):
        return _stand(device, None, waits=Waits.DRAIN)
    how = "approved by the pool's own rules" if wish.approve else "approved by annotation"
    change = Change(what=f"Assigned to {pool}", who=WHO, when=snapshot.now, why=how)
    plan = _stand(device, pool, ordered=True, change=change)
    return msgspec.structs.replace(plan, approve=pool if wish.approve else None)


def _leave(snapshot: Snapshot, device: GPUDevice, claim: str, wish: Wish) -> CardPlan:
    """Withdraw the order, and end the claim once the agent says that no pod has the card any more."""
    if not _released(snapshot, device):
        return _stand(device, claim)
    waits = wish.waits or Waits.DRAIN
    change = Change(what=f"Released from {claim}", who=WHO, when=snapshot.now, why=waits.because)
    return _stand(device, None, waits=waits, change=change)


def _stand(
    device: GPUDevice,
    pool: str | None,
    *,
    ordered: bool = False,
    waits: Waits | None = None,
    change: Change | None = None,
) -> CardPlan:
    if _faulted(device):
        state = DeviceState.FAULTED
    elif device.status.reservation is not None:
        state = DeviceState.RESERVED
    else:
        state = DeviceState.ASSIGNED if pool else DeviceState.UNASSIGNED
    return CardPlan(
        device=device,
        pool=pool,
        state=state,
        ordered=ordered and pool is not None,
        waits=waits,
        change=change,
        tested=unrecorded(device),
    )


def _assignment(pool: GPUPool, plan: CardPlan) -> Assignment:
    return Assignment(
        inventory_id=plan.device.name,
        pool=pool.name,
        resources=tuple(OfferedResource(name=name, units=1) for name in pool.resource_names),
        allocation=Allocation(mode=pool.spec.allocation.mode),
    )


def _introduced(snapshot: Snapshot) -> tuple[GPUDevice, ...]:
    """The cards there is something to say about, in the order of their addresses.

    New ones are left alone until the hardware and the health of all of them and the readiness of their node are known:
    each of these changes the answer, each answer is a write, and an order for all cards costs no more than for one.
    Nothing is awaited of a card that is out of service, nor of one that inventory knows from the bus alone.
    """
    state = snapshot.state
    unseen = {card.inventory_id for card in state.status.devices if card.product is None} if state else set()
    settled = (
        state is not None
        and not _overtaken(snapshot)
        and find(state.status.conditions, NodeCondition.READY_FOR_POOLING) is not None
        and (state.status.device_count or 0) <= len(snapshot.devices)
        and all(
            device.status.state is not None
            or _described(device)
            or device.ignored
            or (device.name in unseen and device.status.hardware is None)
            for device in snapshot.devices
        )
    )
    cards = (device for device in snapshot.devices if device.status.state is not None or settled)
    return tuple(sorted(cards, key=lambda device: device.spec.pci_address))


def _described(device: GPUDevice) -> bool:
    health = find(device.status.conditions, DeviceCondition.HEALTHY)
    return device.status.hardware is not None and health is not None


def _faulted(device: GPUDevice) -> bool:
    health = find(device.status.conditions, DeviceCondition.HEALTHY)
    return health is not None and health.status == FALSE


def _may_issue(snapshot: Snapshot) -> bool:
    """Whether new cards of the node may be handed out: it is there, and everything about it is known and works."""
    return snapshot.labels is not None and _called_ready(snapshot.state) and not _overtaken(snapshot)


def _overtaken(snapshot: Snapshot) -> bool:
    """Whether the node is called ready by somebody who has not looked since. The answer is on its way: until then
    nothing is issued, and nothing is said that may be taken back."""
    state = snapshot.state
    if state is None or not _called_ready(state):
        return False
    return not snapshot.report_observed or contradicts_readiness(state.status)


def _called_ready(state: GPUNodeState | None) -> bool:
    return state is not None and is_true(state.status.conditions, NodeCondition.READY_FOR_POOLING)


def _told(snapshot: Snapshot, device: GPUDevice) -> Waits | None:
    """What people were told that the card waits for."""
    pools = snapshot.state.status.pools if snapshot.state is not None else None
    pending = pools.pending if pools is not None else ()
    return next((Waits(card.reason) for card in pending if card.inventory_id == device.name and card.reason), None)


def _ordered(snapshot: Snapshot, device: GPUDevice, pool: str | None) -> bool:
    orders = snapshot.state.spec.assignments if snapshot.state else ()
    return any(order.inventory_id == device.name and order.pool == pool for order in orders)


def _free(snapshot: Snapshot, device: GPUDevice) -> bool:
    """Whether nobody was told to offer the card and nobody offers it."""
    state = snapshot.state
    if state is None:
        return True
    told = any(order.inventory_id == device.name for order in state.spec.assignments)
    return not told and not _offered(state, device)


def _released(snapshot: Snapshot, device: GPUDevice) -> bool:
    """Whether the agent, having read that the card is no longer ordered, says that no pod has it."""
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
