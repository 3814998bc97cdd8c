"""From the node's orders to what the kubelet is told, one safe step at a time.

The delicate part is moving a card: the kubelet confirms nothing and nobody reports a freed device. So a card that is
to leave a resource first becomes unhealthy there, and leaves only after the kubelet has stopped handing it out and it
was seen unused twice in a row; only then may it join another resource. A card that a pod holds stays listed where it
was handed out, whatever the orders say: this answer is what others rely on before they give the card away.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpunodestate import Assignment, Plugin, PluginResource

LOOKS: Final = 2
"""How often in a row a card must be seen unused before it leaves."""
LOOK_PAUSE: Final = 0.25
"""Seconds between two looks."""

type CardID = str
type ResourceName = str


class Offer(msgspec.Struct, frozen=True):
    """Where a card is listed, and how often it was seen unused since it is to leave."""

    resource: ResourceName
    looks: int = 0
    looked_at: float = 0.0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What the kubelet is told next. In one step cards either join or leave, so that a crash between the writes of a
    step can never leave behind a resource that nobody remembers."""

    offers: dict[CardID, Offer]
    leaving: bool
    """A card has left its resource: the kubelet is told before anybody else hears of it."""
    look_again: float | None
    """Seconds until the next step is due without any change; None when there is nothing to wait for."""


def accepted(assignments: Iterable[Assignment], cards: Iterable[CardID]) -> dict[CardID, ResourceName]:
    """The orders that can be carried out: whole cards that the node has, each in one resource."""
    present = set(cards)
    return {
        order.inventory_id: order.resources[0].name
        for order in assignments
        if order.inventory_id in present and order.allocation.mode == Mode.EXCLUSIVE and len(order.resources) == 1
    }


def recovered(plugin: Plugin | None, remembered: Mapping[CardID, Offer]) -> dict[CardID, Offer]:
    """What the kubelet has been told, read back from the last answer; looks that were not remembered begin anew."""
    offers: dict[CardID, Offer] = {}
    for resource in plugin.resources if plugin else ():
        for card in resource.inventory_ids:
            known = remembered.get(card)
            offers[card] = known if known and known.resource == resource.name else Offer(resource.name)
    return offers


def step(
    orders: Mapping[CardID, ResourceName],
    offers: Mapping[CardID, Offer],
    held: Mapping[CardID, ResourceName],
    *,
    told: bool,
    now: float,
) -> Step:
    """The next state of every card's offer.

    `held` names the resource under which a pod got a card; `told` says that the kubelet already follows `offers`.
    """
    listed = {**offers, **{card: Offer(name) for card, name in held.items() if _elsewhere(offers.get(card), name)}}
    staying: dict[CardID, Offer] = {}
    waits: list[float] = []
    for card, offer in listed.items():
        if orders.get(card) == offer.resource or card in held:
            staying[card] = Offer(offer.resource)
        elif not told:
            staying[card] = offer
        elif (looked := _look(offer, now)).looks < LOOKS:
            staying[card] = looked
            waits.append(looked.looked_at + LOOK_PAUSE - now)
    leaving = len(staying) < len(listed)
    joining = {card: Offer(name) for card, name in orders.items() if card not in listed}
    if leaving:
        return Step(offers=staying, leaving=True, look_again=0.0)
    return Step(offers={**staying, **joining}, leaving=False, look_again=min(waits) if waits else None)


def on_offer(
    orders: Mapping[CardID, ResourceName], offers: Mapping[CardID, Offer], healthy: Iterable[CardID]
) -> dict[CardID, ResourceName]:
    """The cards that may be handed out now, and in which resource."""
    well = set(healthy)
    return {
        card: offer.resource for card, offer in offers.items() if card in well and orders.get(card) == offer.resource
    }


def answer(offers: Mapping[CardID, Offer], available: Mapping[CardID, ResourceName], generation: int) -> Plugin:
    """What the kubelet has been told, in the words of the API."""
    names = sorted({offer.resource for offer in offers.values()})
    return Plugin(
        observed_generation=generation,
        resources=tuple(_resource(name, offers, available) for name in names),
    )


def _resource(name: str, offers: Mapping[CardID, Offer], available: Mapping[CardID, ResourceName]) -> PluginResource:
    cards = tuple(sorted(card for card, offer in offers.items() if offer.resource == name))
    return PluginResource(
        name=name, units=len(cards), healthy=sum(card in available for card in cards), inventory_ids=cards
    )


def _elsewhere(offer: Offer | None, name: ResourceName) -> bool:
    return offer is None or offer.resource != name


def _look(offer: Offer, now: float) -> Offer:
    """One more look at an unused card, if the last one is long enough ago to count as another."""
    if offer.looks and now < offer.looked_at + LOOK_PAUSE:
        return offer
    return Offer(offer.resource, offer.looks + 1, now)
