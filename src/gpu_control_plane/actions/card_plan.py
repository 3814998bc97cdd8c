"""What all plans about cards share: which cards are meant, and what the edits lead to. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from gpu_control_plane.actions.forecast import Forecast, card_change, with_edits
from gpu_control_plane.actions.plan import CardChange, Edit, Plan, Refusal
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.views.fleet import Fleet

PASSING: Final = frozenset(
    {PendingReason.BURN_IN, PendingReason.NODE_NOT_READY, PendingReason.PROBE, PendingReason.DRAIN}
)
"""What a card that is approved merely waits for."""


def find_cards(fleet: Fleet, names: Iterable[str]) -> tuple[list[GPUDevice], list[Refusal]]:
    """The cards of these names, and a refusal for each that there is none of, or of which nothing can be foretold."""
    cards: list[GPUDevice] = []
    refusals: list[Refusal] = []
    unread = unreadable(fleet)
    for name in dict.fromkeys(names):
        card = fleet.cards.get(name)
        if unread is not None:
            refusals.append(Refusal(name=name, sentence=unread))
        elif card is None:
            close = get_close_matches(name, fleet.cards, n=1)
            hint = f"; did you mean {close[0]}?" if close else ": see kubectl gpu devices"
            refusals.append(Refusal(name=name, sentence=f"there is no such card{hint}", absent=True))
        elif card.deleting:
            refusals.append(Refusal(name=name, sentence="it has left its node, and is being deleted", absent=True))
        else:
            cards.append(card)
    return cards, refusals


def unreadable(fleet: Fleet) -> str | None:
    """Why nothing can be foretold, if so: a decision about a card rests on all of these kinds."""
    kinds: tuple[type[Object], ...] = (GPUDevice, GPUNodeState, GPUPool, Node)
    needed = {kind.resource.qualified_name for kind in kinds}
    missing = [each.why for each in fleet.missing if each.kind in needed]
    return f"what this leads to cannot be told: {missing[0]}" if missing else None


def on_nodes(fleet: Fleet, nodes: Collection[str]) -> dict[str, Fleet]:
    """The fleet for each of these nodes, with the cards of that node alone."""
    cards: dict[str, dict[str, GPUDevice]] = defaultdict(dict)
    for name, card in fleet.cards.items():
        if card.spec.node_name in nodes:
            cards[card.spec.node_name][name] = card
    return {node: msgspec.structs.replace(fleet, cards=found) for node, found in cards.items()}


def forecast_edits(fleet: Fleet, edits: Iterable[Edit]) -> Forecast:
    """What these edits of cards lead to, on their nodes."""
    made = tuple(edits)
    return Forecast(fleet, with_edits(fleet, made), {fleet.cards[edit.name].spec.node_name for edit in made})


def planned(
    fleet: Fleet,
    command: str,
    edits: Sequence[Edit],
    *,
    refusals: Iterable[Refusal] = (),
    unchanged: Iterable[str] = (),
    notes: Iterable[str] = (),
) -> Plan:
    """The plan with what its edits lead to."""
    forecast = forecast_edits(fleet, edits)
    found = forecast.consequences()
    moved = {change.card for change in found.cards}
    waiting = (_waiting(fleet, forecast, edit.name) for edit in edits if edit.name not in moved)
    return Plan(
        command=command,
        edits=tuple(edits),
        refusals=tuple(refusals),
        unchanged=tuple(unchanged),
        cards=(*found.cards, *(change for change in waiting if change is not None)),
        units=found.units,
        notes=tuple(notes),
    )


def _waiting(fleet: Fleet, forecast: Forecast, name: str) -> CardChange | None:
    """A card that joins its pool later: it says what it waits for."""
    after = forecast.after.get(name)
    if after is None or after.pool is not None or after.pending not in PASSING:
        return None
    return card_change(fleet.cards[name], forecast.before[name], after)
