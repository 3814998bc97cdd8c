"""Other device plugins that serve the same cards.

A card must be offered by one plugin only, or two pods get it. What a rival has registered shows on the Node.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from gpu_control_plane.agent.units import ResourceName

_DOMAINS: Final = ("nvidia.com/",)
_OTHERS: Final = frozenset({"volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "4paradigm.com/vgpu"})
_FADING: Final = 120.0
"""Seconds that the kubelet may take until the Node no longer shows what was withdrawn. Who shows it then is a rival."""


class Claims:
    """Which resources are ours: those on offer, and for a while those that were, by us or by the agent before us."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until: dict[ResourceName, float] = {}

    def renew(self, offered: Iterable[ResourceName]) -> set[ResourceName]:
        """These are on offer now; returns all that are ours."""
        now = self._monotonic()
        fading = {name: until for name, until in self._until.items() if until > now}
        self._until = {**fading, **dict.fromkeys(offered, now + _FADING)}
        return {*self._until}


def rivals(allocatable: Mapping[str, str], ours: Collection[str]) -> tuple[str, ...]:
    """The resources with cards in them that somebody else offers on this node."""
    return tuple(
        sorted(
            name
            for name, amount in allocatable.items()
            if amount != "0" and name not in ours and (name.startswith(_DOMAINS) or name in _OTHERS)
        )
    )
