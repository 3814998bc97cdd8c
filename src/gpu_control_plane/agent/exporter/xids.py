"""The error reports of cards as metrics: the last one for as long as it stands, and how many there were of each.

dcgm-exporter shows the last XID for ever. Here it goes back to 0 when the card is cleared, so that an alert on it ends
when the fault does; the count stays.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from gpu_control_plane.agent.health import unseen


class Reports(msgspec.Struct, frozen=True):
    """The error reports of one card."""

    last: int = 0
    """The XID that stands; 0 for none, as DCGM has it."""
    counts: Mapping[int, int] = {}
    """How many there were since the agent started, by code."""


class XidLog:
    """Follows what the health probes see; nothing is probed for it."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, ...]] = {}
        self._counts: dict[str, Counter[int]] = {}

    def observe(self, address: str, xids: tuple[int, ...]) -> None:
        """A probe of this card has seen these reports, which are all since it was last cleared."""
        self._counts.setdefault(address, Counter()).update(unseen(self._known.get(address, ()), xids))
        self._known[address] = xids

    def forget(self, address: str) -> None:
        """There is another card now, and what was reported was not about it."""
        self._known.pop(address, None)
        self._counts.pop(address, None)

    def reports(self) -> dict[str, Reports]:
        """What is known of each card that was ever probed."""
        return {
            address: Reports(xids[-1] if xids else 0, dict(self._counts[address]))
            for address, xids in self._known.items()
        }
