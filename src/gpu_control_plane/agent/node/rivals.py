"""Other device plugins that serve the same cards. Pure.

A card must be offered by one plugin only, or two pods get it. What a rival has registered shows on the Node.
"""

from collections.abc import Collection, Mapping
from typing import Final

_DOMAINS: Final = ("nvidia.com/",)
_OTHERS: Final = frozenset({"volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "4paradigm.com/vgpu"})


def rivals(allocatable: Mapping[str, str], ours: Collection[str]) -> tuple[str, ...]:
    """The resources with cards in them that somebody else offers on this node."""
    return tuple(
        sorted(
            name
            for name, amount in allocatable.items()
            if amount != "0" and name not in ours and (name.startswith(_DOMAINS) or name in _OTHERS)
        )
    )
