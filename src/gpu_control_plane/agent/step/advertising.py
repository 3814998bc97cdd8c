"""Which units the device plugins list, and how a unit moves from one resource to another without being given twice.

The kubelet acknowledges no list of devices and reports no freed device. So a unit that has to leave a resource is first
listed as unhealthy, and leaves only after the kubelet no longer counts it as allocatable and two checks in a row found
it unused; only then may a clashing unit of the same card join another resource. A unit that a pod holds stays listed
where it was allocated, whatever the orders say: controllers wait for this list before they give the card away.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from typing import Final

import msgspec

from gpu_control_plane.agent.units import CardID, ResourceName, Unit, clash
from gpu_control_plane.api.gpunodestate import Plugin, PluginResource

UNUSED_CHECKS: Final = 2
"""How many checks in a row must find a unit unused before it leaves."""
UNUSED_CHECK_SECONDS: Final = 0.25
"""Time between two checks."""


class UnusedCheck(msgspec.Struct, frozen=True):
    """How many checks in a row have found a leaving unit unused, and when the last one was."""

    count: int = 0
    at: float = 0.0


NOT_CHECKED: Final = UnusedCheck()

type Advertised = Mapping[Unit, UnusedCheck]
"""The units that the device plugins list."""


class Advertising(msgspec.Struct, frozen=True, kw_only=True):
    """What the plugins list next. One step either adds units or removes some: the agent may die between telling the
    kubelet and telling the API server, and then no resource may exist that neither of them remembers."""

    advertised: dict[Unit, UnusedCheck]
    removed: bool
    """A unit has left its resource: the kubelet has to be told before the API server."""
    look_again: float | None
    """Seconds until the next step is due if nothing changes; None when nothing is waited for."""


def next_advertising(
    desired: Set[Unit], advertised: Advertised, held: Set[Unit], *, allocatable: Set[Unit], now: float
) -> Advertising:
    """The next list of units.

    `desired` are the units that the orders ask for and the hardware can give, `held` those that pods have, and
    `allocatable` those that the kubelet may still allocate.
    """
    certain = {unit: check for unit, check in advertised.items() if unit in held or not _clashes(unit, held)}
    listed = {**certain, **dict.fromkeys(held - certain.keys(), NOT_CHECKED)}
    staying: dict[Unit, UnusedCheck] = {}
    waits: list[float] = []
    for unit, check in listed.items():
        if unit in desired or unit in held:
            staying[unit] = NOT_CHECKED
        elif unit in allocatable:
            staying[unit] = check
            waits.append(UNUSED_CHECK_SECONDS)
        elif (checked := _checked(check, now)).count < UNUSED_CHECKS:
            staying[unit] = checked
            waits.append(checked.at + UNUSED_CHECK_SECONDS - now)
    if len(staying) < len(listed):
        return Advertising(advertised=staying, removed=True, look_again=0.0)
    joining = {unit: NOT_CHECKED for unit in desired - listed.keys() if not _clashes(unit, listed)}
    return Advertising(advertised={**staying, **joining}, removed=False, look_again=min(waits, default=None))


def inherited(reported: Plugin | None, desired: Collection[Unit]) -> dict[Unit, UnusedCheck]:
    """What an agent that has just started must move with care: cards that its predecessor listed in other resources.

    The report names cards, not units: such a card counts as listed whole, which clashes with every unit of it. The rest
    needs no care: the kubelet allocates nothing before the new agent has registered, and tells which pod holds what.
    """
    meant = {(unit.resource, unit.card) for unit in desired}
    return {
        Unit(resource.name, card, card): NOT_CHECKED
        for resource in (reported.resources if reported else ())
        for card in resource.inventory_ids
        if (resource.name, card) not in meant
    }


def allocatable_units(desired: Collection[Unit], advertised: Advertised, healthy: Collection[CardID]) -> set[Unit]:
    """The advertised units that the kubelet may allocate now; the others are listed as unhealthy."""
    return {unit for unit in advertised if unit in desired and unit.card in healthy}


def plugin_status(
    advertised: Advertised, allocatable: Collection[Unit], generation: int, *, unpooled: ResourceName | None
) -> Plugin:
    """`GPUNodeState.status.plugin`: what the kubelet has been told.

    A pool counts a card as its own until the card is no longer listed. Cards in no pool, advertised as `unpooled`, are
    counted and not named: any pool may take one.
    """
    names = sorted({unit.resource for unit in advertised})
    return Plugin(
        observed_generation=generation,
        resources=tuple(_resource(name, advertised, allocatable, named=name != unpooled) for name in names),
    )


def _resource(name: str, advertised: Iterable[Unit], allocatable: Collection[Unit], *, named: bool) -> PluginResource:
    units = [unit for unit in advertised if unit.resource == name]
    return PluginResource(
        name=name,
        units=len(units),
        healthy=sum(unit in allocatable for unit in units),
        inventory_ids=tuple(sorted({unit.card for unit in units})) if named else (),
    )


def _clashes(unit: Unit, others: Iterable[Unit]) -> bool:
    return any(clash(unit, other) for other in others)


def _checked(check: UnusedCheck, now: float) -> UnusedCheck:
    """One more check of an unused unit, if the last one is long enough ago to count as another."""
    return check if check.count and now < check.at + UNUSED_CHECK_SECONDS else UnusedCheck(check.count + 1, now)
