"""What the agent asks of the hardware below it, whatever that is: a simulation, or a vendor's library.

Small on purpose. Every capability is optional: a card that cannot tell leaves the field empty, and nobody above may
take that for a fault.
"""

from typing import Protocol

import msgspec

from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.nodefeature import NodeFacts


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """What speaks about the health of one card. The defaults are those of a card that has nothing to report."""

    xids: tuple[int, ...] = ()
    """Error reports of the driver since the card was last cleared, oldest first."""
    lost: bool = False
    """The card no longer answers on the bus."""
    uncorrected_ecc: int = 0
    """Uncorrected memory errors since the driver was loaded."""
    remap_failed: bool = False
    """A bad row of memory could not be replaced by a spare one."""
    overheated: bool = False
    """The card has slowed itself down to protect itself."""


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """What one card measures at the moment; None where it does not tell."""

    temperature: int | None = None
    power: int | None = None
    utilisation: int | None = None
    memory_used: int | None = None


class Backend(Protocol):
    """The cards of one node. Calls are plain and may block: whoever has an event loop makes them in a thread."""

    def facts(self) -> NodeFacts:
        """The node as a whole: driver, toolkit, and how many cards the bus shows."""

    def cards(self) -> tuple[Hardware, ...]:
        """Every card, in the order of their addresses."""

    def signals(self, address: str) -> Signals:
        """The health of the card at this address."""

    def readings(self, address: str) -> Readings:
        """The measurements of the card at this address."""
