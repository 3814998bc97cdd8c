"""Device plugins of others that serve the same cards.

A card must be advertised by one plugin only, or two pods get it. What another plugin has registered shows on the Node.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from gpu_control_plane.agent.units import ResourceName
from gpu_control_plane.agent.vendors.interface import VendorSupport

_WITHDRAWN_SECONDS: Final = 120.0
"""How long the Node may go on showing a resource that we have withdrawn. Later it is another plugin's."""

type OwnResources = Mapping[ResourceName, float]
"""Resources that count as ours, each until a moment of the monotonic clock."""


def own_resources(known: OwnResources, advertised: Iterable[ResourceName], now: float) -> dict[ResourceName, float]:
    """The resources that are ours: those advertised now, and for a while those that were, by this agent or the one
    before it."""
    lasting = {name: until for name, until in known.items() if until > now}
    return {**lasting, **dict.fromkeys(advertised, now + _WITHDRAWN_SECONDS)}


def conflicting_resources(
    allocatable: Mapping[str, str],
    ours: Collection[ResourceName],
    vendors: Iterable[VendorSupport],
    more: Iterable[str] = (),
) -> tuple[ResourceName, ...]:
    """The resources of these vendors' cards that another plugin advertises on this Node. `more` names some beside those
    that the vendors know."""
    names = {*more, *(name for vendor in vendors for name in vendor.plugin_resources)}
    beginnings = tuple(name for name in names if name.endswith(("/", "-")))
    return tuple(
        sorted(
            name
            for name, amount in allocatable.items()
            if amount != "0" and name not in ours and (name.startswith(beginnings) or name in names)
        )
    )
