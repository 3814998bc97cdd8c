"""Holding cards back, taking them out of service and back into it, as plans. Pure.

Retiring is the label ignore: no new pod gets the card, those that have it run on, and when the last has ended the card
leaves its pool. Its approval stays, so that taking the label off brings the card back to where it was.
"""

from collections.abc import Sequence

from gpu_control_plane.actions.approvals import HELD
from gpu_control_plane.actions.card_plan import find_cards, planned
from gpu_control_plane.actions.plan import Edit, Plan, Refusal, command_line
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.names import Annotation, DeviceCondition, Label
from gpu_control_plane.kube.conditions import FALSE, find
from gpu_control_plane.kube.sentences import counted_are
from gpu_control_plane.pools.snapshot import claim_of
from gpu_control_plane.views.fleet import Fleet


def plan_hold(fleet: Fleet, cards: Sequence[str], reason: str | None = None) -> Plan:
    """Keep pools that approve cards by themselves away from these; a person may approve them all the same."""
    known, refusals = find_cards(fleet, cards)
    edits = [
        Edit.of_card(card, annotations={Annotation.HOLD: reason or HELD})
        for card in known
        if (_hold(card) != reason if reason else _hold(card) is None)
    ]
    changed = {edit.name for edit in edits}
    inside = [card.name for card in known if card.name in changed and claim_of(card) is not None]
    away = f"a hold keeps them away when their approval is taken back: {command_line('revoke', *inside)}"
    notes = [f"{counted_are(len(inside), 'card')} in a pool, and {away}"] if inside else []
    return planned(
        fleet,
        command_line("hold", *cards, reason=reason),
        edits,
        refusals=refusals,
        unchanged=[card.name for card in known if card.name not in changed],
        notes=notes,
    )


def plan_release_hold(fleet: Fleet, cards: Sequence[str]) -> Plan:
    """Let pools that approve cards by themselves have these."""
    known, refusals = find_cards(fleet, cards)
    held = [card for card in known if _hold(card) is not None]
    return planned(
        fleet,
        command_line("hold", *cards, release=True),
        [Edit.of_card(card, annotations={Annotation.HOLD: None}) for card in held],
        refusals=refusals,
        unchanged=[card.name for card in known if _hold(card) is None],
    )


def plan_retire(fleet: Fleet, cards: Sequence[str], reason: str | None = None) -> Plan:
    """Take cards out of service: they are safe to pull when no pod has them any more."""
    known, refusals = find_cards(fleet, cards)
    return planned(
        fleet,
        command_line("retire", *cards, reason=reason),
        [
            Edit.of_card(card, labels={Label.IGNORE: "true"}, annotations=_reason(card, reason))
            for card in known
            if not card.ignored
        ],
        refusals=refusals,
        unchanged=[card.name for card in known if card.ignored],
    )


def plan_unretire(fleet: Fleet, cards: Sequence[str], reason: str | None = None) -> Plan:
    """Take cards back into service."""
    known, refusals = find_cards(fleet, cards)
    return planned(
        fleet,
        command_line("retire", *cards, undo=True, reason=reason),
        [
            Edit.of_card(card, labels={Label.IGNORE: None}, annotations=_reason(card, reason))
            for card in known
            if card.ignored
        ],
        refusals=refusals,
        unchanged=[card.name for card in known if not card.ignored],
    )


def plan_clear_fault(fleet: Fleet, cards: Sequence[str], reason: str | None = None) -> Plan:
    """Tell the agent that faulted cards, or such as failed burn-in, have been mended: it looks at them again."""
    known, refusals = find_cards(fleet, cards)
    edits = []
    for card in known:
        if _is_broken(card):
            edits.append(Edit.of_card(card, annotations={Annotation.CLEAR_FAULT: reason or "yes"}))
        else:
            refusals.append(Refusal(name=card.name, sentence="it has no fault, and has not failed its test"))
    return planned(
        fleet,
        command_line("clear-fault", *cards, reason=reason),
        edits,
        refusals=refusals,
        notes=["the node's agent looks at the card again; a card that is still broken stays out"] if edits else [],
    )


def _hold(card: GPUDevice) -> str | None:
    """Why the card is held, if it is."""
    return card.metadata.annotations.get(Annotation.HOLD)


def _reason(card: GPUDevice, reason: str | None) -> dict[str, str | None]:
    held = card.metadata.annotations.get(Annotation.REASON)
    return {Annotation.REASON: reason} if reason != held else {}


def _is_broken(card: GPUDevice) -> bool:
    said = (find(card.status.conditions, kind) for kind in (DeviceCondition.HEALTHY, DeviceCondition.BURNED_IN))
    return any(each is not None and each.status == FALSE for each in said)
