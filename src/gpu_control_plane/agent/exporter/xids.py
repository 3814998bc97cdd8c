"""The error codes of cards as metrics: the last one until it is cleared, and the number of each.

dcgm-exporter shows the last XID for ever. Here it returns to 0 when the card is cleared, so that an alert on it ends
with the fault; the number stays.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from gpu_control_plane.agent.health import unseen


class Reports(msgspec.Struct, frozen=True):
    """The error codes of one card."""

    last: int = 0
    """The last code that was not cleared; 0 for none, as in DCGM."""
    counts: Mapping[int, int] = {}
    """How often each code was reported since the agent started."""


class XidLog:
    """Counts the codes that health probes find; nothing is probed for it."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, ...]] = {}
        self._counts: dict[str, Counter[int]] = {}

    def observe(self, address: str, xids: tuple[int, ...]) -> None:
        """A probe of this card has found these codes, which are all since it was last cleared."""
        self._counts.setdefault(address, Counter()).update(unseen(self._known.get(address, ()), xids))
        self._known[address] = xids

    def forget(self, address: str) -> None:
        """There is another card at this address now."""
        self._known.pop(address, None)
        self._counts.pop(address, None)

    def reports(self) -> dict[str, Reports]:
        """By the address of each card that was ever probed."""
        return {
            address: Reports(xids[-1] if xids else 0, dict(self._counts[address]))
            for address, xids in self._known.items()
        }
