"""Approving cards for pools, taking approvals back and moving cards from pool to pool, as plans. Pure.

An approval is one annotation, and moving a card is one write of it: the controller drains the card, frees it and lets
it join its new pool, so nothing is lost when whoever asked for it goes away in between. A card that is first released
and then approved anew could be taken meanwhile by a pool that approves cards by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final

from gpu_control_plane.actions.card_plan import PASSING, find_cards, forecast_edits, on_nodes, planned
from gpu_control_plane.actions.forecast import Decided, with_edits
from gpu_control_plane.actions.plan import Edit, Plan, Refusal, command_line
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.names import Annotation, DeviceCondition
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.pools.desired_pool import DesiredPool
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.pools.snapshot import claim_of
from gpu_control_plane.views.fleet import Fleet

HELD: Final = "held with kubectl gpu"
"""The value of a hold for which nobody gave a reason."""


def waiting_cards(fleet: Fleet, *, nodes: Sequence[str] = (), model: str | None = None) -> tuple[GPUDevice, ...]:
    """The cards that wait for a person's approval: of these nodes, of a model whose name matches."""
    found = (card for card in fleet.cards.values() if card.status.pending_reason == PendingReason.APPROVAL)
    chosen = [
        card
        for card in found
        if (not nodes or card.spec.node_name in nodes) and (model is None or _is_model(card, model))
    ]
    return tuple(sorted(chosen, key=lambda card: (card.spec.node_name, card.spec.pci_address)))


def joinable_pools(fleet: Fleet, name: str) -> tuple[str, ...]:
    """The pools that an approval would bring the card into, now or when it is ready, by name."""
    card = fleet.cards[name]
    return tuple(pool for pool in sorted(fleet.pools) if _refused(_end(fleet, card, pool), pool) is None)


def plan_approve(fleet: Fleet, cards: Sequence[str], pool: str | None, reason: str | None = None) -> Plan:
    """Approve cards for a pool. Without a pool each goes to the only one that could have it."""
    nodes = {fleet.cards[name].spec.node_name for name in cards if name in fleet.cards} if pool is None else set()
    local = on_nodes(fleet, nodes)

    def target(card: GPUDevice) -> str | Refusal:
        now = _approved(card) or claim_of(card)
        chosen = pool or now or _only_pool(local[card.spec.node_name], card)
        if isinstance(chosen, str) and now is not None and now != chosen:
            command = command_line("reassign", card.name, to=chosen)
            return Refusal(name=card.name, sentence=f"it is approved for {now}; to move it: {command}")
        return chosen

    command = command_line("approve", *cards, pool=pool, reason=reason)
    return _assignments(fleet, cards, target, reason, command)


def plan_reassign(fleet: Fleet, cards: Sequence[str], to: str, reason: str | None = None) -> Plan:
    """Move cards from the pool that they are in, or are approved for, to another one."""

    def target(card: GPUDevice) -> str | Refusal:
        if _approved(card) is None and claim_of(card) is None:
            command = command_line("approve", card.name, pool=to)
            return Refusal(name=card.name, sentence=f"it is in no pool that it could leave: {command}")
        return to

    return _assignments(fleet, cards, target, reason, command_line("reassign", *cards, to=to, reason=reason))


def plan_revoke(fleet: Fleet, cards: Sequence[str], reason: str | None = None, *, hold: bool = False) -> Plan:
    """Take the approval of cards back. With `hold` no pool that approves by itself takes them again."""
    known, refusals = find_cards(fleet, cards)
    unchanged: list[str] = []
    edits: list[Edit] = []
    for card in known:
        held = Annotation.HOLD in card.metadata.annotations
        if _approved(card) is None and (held or not hold):
            unchanged.append(card.name)
            continue
        annotations: dict[str, str | None] = {Annotation.ASSIGNMENT: None, Annotation.REASON: reason}
        if hold and not held:
            annotations[Annotation.HOLD] = reason or HELD
        edits.append(Edit.of_card(card, annotations=_differing(card, annotations)))
    after = forecast_edits(fleet, edits).after
    taken = {edit.name: pool for edit in edits if (pool := after[edit.name].pool) is not None}
    for name, pool in taken.items():
        again = command_line("revoke", name, hold=True)
        sentence = f"the pool {pool} approves such cards by itself and would take it at once: {again}"
        refusals.append(Refusal(name=name, sentence=sentence))
    return planned(
        fleet,
        command_line("revoke", *cards, hold=hold, reason=reason),
        [edit for edit in edits if edit.name not in taken],
        refusals=refusals,
        unchanged=unchanged,
    )


def _assignments(
    fleet: Fleet,
    names: Sequence[str],
    target: Callable[[GPUDevice], str | Refusal],
    reason: str | None,
    command: str,
) -> Plan:
    """Write an approval for each card, but for those that its pool would not take with all the others."""
    known, refusals = find_cards(fleet, names)
    targets: dict[str, str] = {}
    for card in known:
        wanted = target(card)
        if isinstance(wanted, Refusal):
            refusals.append(wanted)
        else:
            targets[card.name] = wanted
    edits = [
        _approval(fleet.cards[name], pool, reason)
        for name, pool in targets.items()
        if _approved(fleet.cards[name]) != pool
    ]
    nodes = {fleet.cards[name].spec.node_name for name in targets}
    after = Decided(with_edits(fleet, edits), nodes).ends
    for name, pool in targets.items():
        if (pending := _refused(after[name], pool)) is not None:
            refusals.append(Refusal(name=name, sentence=refusal_sentence(fleet, fleet.cards[name], pool, pending)))
    refused = {refusal.name for refusal in refusals}
    settled = refused | {edit.name for edit in edits}
    return planned(
        fleet,
        command,
        [edit for edit in edits if edit.name not in refused],
        refusals=refusals,
        unchanged=[name for name in targets if name not in settled],
    )


def _approval(card: GPUDevice, pool: str, reason: str | None) -> Edit:
    return Edit.of_card(card, annotations=_differing(card, {Annotation.ASSIGNMENT: pool, Annotation.REASON: reason}))


def _differing(card: GPUDevice, annotations: Mapping[str, str | None]) -> dict[str, str | None]:
    """Those that the card does not have like this. A reason that nobody gave is not kept from before."""
    return {key: value for key, value in annotations.items() if card.metadata.annotations.get(key) != value}


def _end(fleet: Fleet, card: GPUDevice, pool: str) -> DesiredPool:
    """Where the card ends if it is approved for the pool."""
    approved = with_edits(fleet, (_approval(card, pool, None),))
    return Decided(approved, {card.spec.node_name}).ends[card.name]


def _refused(end: DesiredPool, pool: str) -> PendingReason | None:
    """Why a card with this end does not come into the pool, now or later."""
    if end.pool == pool or end.pending in PASSING:
        return None
    return end.pending or PendingReason.IN_OTHER_POOL


def _only_pool(fleet: Fleet, card: GPUDevice) -> str | Refusal:
    found = joinable_pools(fleet, card.name)
    if len(found) == 1:
        return found[0]
    if found:
        return Refusal(name=card.name, sentence=f"it could join {' or '.join(found)}: say which, with --pool")
    reasons = {pool: _refused(_end(fleet, card, pool), pool) for pool in sorted(fleet.pools)}
    for pool, reason in reasons.items():
        if reason is not None and reason is not PendingReason.NOT_SELECTED:
            return Refusal(name=card.name, sentence=refusal_sentence(fleet, card, pool, reason))
    return Refusal(name=card.name, sentence=f"{PendingReason.NO_POOL.because}: see spec.deviceSelector of the pools")


def refusal_sentence(fleet: Fleet, card: GPUDevice, pool: str, pending: PendingReason) -> str:
    """Why the card would not join the pool, and what to do."""
    mended = f"once it is mended: {command_line('clear-fault', card.name)}"
    spec = fleet.pools[pool].spec if pool in fleet.pools else None
    match pending, spec:
        case PendingReason.POOL_NOT_FOUND, _:
            close = get_close_matches(pool, fleet.pools, n=1)
            words = f"there is no pool {pool}" + (f"; did you mean {close[0]}?" if close else ": see kubectl gpu pools")
        case PendingReason.NOT_SELECTED, _:
            words = f"the pool {pool} does not select it: see spec.deviceSelector of the pool"
        case PendingReason.NODE_LIMIT, spec if spec is not None and spec.device_selector is not None:
            limit = spec.device_selector.max_devices_per_node
            words = f"the pool {pool} takes no more cards of {card.spec.node_name} (maxDevicesPerNode: {limit})"
        case PendingReason.MODE_UNSUPPORTED, spec if spec is not None:
            words = f"it cannot be divided as the pool {pool} asks: {spec.allocation}"
        case PendingReason.HEALTH, _:
            health = find(card.status.conditions, DeviceCondition.HEALTHY)
            words = f"it has a fault ({health.reason if health is not None else 'unknown'}); {mended}"
        case PendingReason.BURN_IN_FAILED, _:
            words = f"it failed its test; {mended}"
        case PendingReason.IGNORED, _:
            words = f"it is retired; to take it back: {command_line('retire', card.name, undo=True)}"
        case PendingReason.POOL_MISCONFIGURED, _:
            words = f"the pool {pool} cannot be carried out: {command_line('explain', 'pool', pool)}"
        case _:
            words = pending.because
    return words


def _approved(card: GPUDevice) -> str | None:
    return card.metadata.annotations.get(Annotation.ASSIGNMENT) or None


def _is_model(card: GPUDevice, pattern: str) -> bool:
    """As `deviceSelector` compares models; a word without a wildcard may stand anywhere."""
    product = card.status.hardware.product.lower() if card.status.hardware is not None else ""
    wanted = pattern.lower().replace("[", "[[]")
    return fnmatchcase(product, wanted if "*" in wanted or "?" in wanted else f"*{wanted}*")
