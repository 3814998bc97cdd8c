"""From the node's orders to what the kubelet is told, one safe step at a time.

The delicate part is moving a card: the kubelet confirms nothing and nobody reports a freed device. So a unit that is
to leave a resource first becomes unhealthy there, and leaves only after the kubelet has stopped handing it out and it
was seen unused twice in a row; only then may a unit of the same card that clashes with it join another resource. A
unit that a pod holds stays listed where it was handed out, whatever the orders say: this answer is what others rely
on before they give the card away.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from typing import Final

import msgspec

from gpu_control_plane.agent.units import CardID, ResourceName, Unit, clash
from gpu_control_plane.api.gpunodestate import Plugin, PluginResource

LOOKS: Final = 2
"""How often in a row a unit must be seen unused before it leaves."""
LOOK_PAUSE: Final = 0.25
"""Seconds between two looks."""


class Look(msgspec.Struct, frozen=True):
    """How often a unit was seen unused since it is to leave, and when last."""

    count: int = 0
    at: float = 0.0


NOT_LOOKED: Final = Look()

type Offers = Mapping[Unit, Look]
"""What the kubelet is told of."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What the kubelet is told next. In one step units either join or leave, so that a crash between the writes of a
    step can never leave behind a resource that nobody remembers."""

    offers: dict[Unit, Look]
    leaving: bool
    """A unit has left its resource: the kubelet is told before anybody else hears of it."""
    look_again: float | None
    """Seconds until the next step is due without any change; None when there is nothing to wait for."""


def recovered(plugin: Plugin | None, remembered: Offers) -> dict[Unit, Look]:
    """What the kubelet has been told, read back from the last answer; looks that were not remembered begin anew.

    The answer names cards. Where nothing is remembered of a card, it is taken to be listed whole, as which it clashes
    with everything else.
    """
    offers: dict[Unit, Look] = {}
    for resource in plugin.resources if plugin else ():
        for card in resource.inventory_ids:
            known = {
                unit: look for unit, look in remembered.items() if (unit.resource, unit.card) == (resource.name, card)
            }
            offers |= known or {Unit(resource.name, card, card): NOT_LOOKED}
    return offers


def inherited(plugin: Plugin | None, wanted: Collection[Unit]) -> dict[Unit, Look]:
    """What an agent that has just started must take care of: cards that its predecessor listed elsewhere.

    The rest needs no care: the kubelet hands nothing out before it hears from the new agent, and tells who holds what.
    """
    meant = {(unit.resource, unit.card) for unit in wanted}
    return {unit: look for unit, look in recovered(plugin, {}).items() if (unit.resource, unit.card) not in meant}


def step(wanted: Set[Unit], offers: Offers, held: Set[Unit], *, lent: Set[Unit], now: float) -> Step:
    """The next state of every offer.

    `wanted` are the units that the orders ask for and the hardware can give, `held` those that pods have, and `lent`
    those that the kubelet may still hand out.
    """
    certain = {unit: look for unit, look in offers.items() if unit in held or not _any_clash(unit, held)}
    listed = {**certain, **dict.fromkeys(held - certain.keys(), NOT_LOOKED)}
    staying: dict[Unit, Look] = {}
    waits: list[float] = []
    for unit, look in listed.items():
        if unit in wanted or unit in held:
            staying[unit] = NOT_LOOKED
        elif unit in lent:
            staying[unit] = look
            waits.append(LOOK_PAUSE)
        elif (looked := _look(look, now)).count < LOOKS:
            staying[unit] = looked
            waits.append(looked.at + LOOK_PAUSE - now)
    if len(staying) < len(listed):
        return Step(offers=staying, leaving=True, look_again=0.0)
    joining = {unit: NOT_LOOKED for unit in wanted - listed.keys() if not _any_clash(unit, listed)}
    return Step(offers={**staying, **joining}, leaving=False, look_again=min(waits, default=None))


def on_offer(wanted: Collection[Unit], offers: Offers, healthy: Collection[CardID]) -> set[Unit]:
    """The units that may be handed out now."""
    return {unit for unit in offers if unit in wanted and unit.card in healthy}


def answer(
    offers: Offers, available: Collection[Unit], generation: int, *, unpooled: ResourceName | None = None
) -> Plugin:
    """What the kubelet has been told, in the words of the API.

    Cards that are listed are taken by their pool until they no longer are. Those in no pool, offered as `unpooled`,
    are anybody's: they are counted, not named.
    """
    names = sorted({unit.resource for unit in offers})
    return Plugin(
        observed_generation=generation,
        resources=tuple(_resource(name, offers, available, named=name != unpooled) for name in names),
    )


def _resource(name: str, offers: Iterable[Unit], available: Collection[Unit], *, named: bool) -> PluginResource:
    units = [unit for unit in offers if unit.resource == name]
    return PluginResource(
        name=name,
        units=len(units),
        healthy=sum(unit in available for unit in units),
        inventory_ids=tuple(sorted({unit.card for unit in units})) if named else (),
    )


def _any_clash(unit: Unit, others: Iterable[Unit]) -> bool:
    return any(clash(unit, other) for other in others)


def _look(look: Look, now: float) -> Look:
    """One more look at an unused unit, if the last one is long enough ago to count as another."""
    return look if look.count and now < look.at + LOOK_PAUSE else Look(look.count + 1, now)
