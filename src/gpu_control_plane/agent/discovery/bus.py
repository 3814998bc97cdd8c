"""Polls the PCI bus: without privileges a process is not notified when a card is added or removed."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from gpu_control_plane.agent.backends.sysfs import PCIVendor, Sysfs
from gpu_control_plane.api.gpudevice import PCI

POLL_SECONDS: Final = 60.0
"""Each poll reads a few small files of this machine."""

STUCK_SECONDS: Final = 150.0

_log = structlog.get_logger(component="agent.discovery")


class BusPoller:
    """The cards of these vendors on the bus; `on_change` is called when they differ from those of the last poll."""

    def __init__(
        self,
        sysfs: Sysfs,
        vendors: Sequence[PCIVendor],
        on_change: Callable[[], None],
        interval: float = POLL_SECONDS,
        *,
        stuck_after: float = STUCK_SECONDS,
    ) -> None:
        self._sysfs = sysfs
        self._vendors = vendors
        self._on_change = on_change
        self._interval = interval
        self._stuck_after = stuck_after
        self._hidden = False
        self._began: float | None = None
        self.cards: tuple[PCI, ...] | None = None
        """None until the bus could be read for the first time."""

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self.poll()
            await asyncio.sleep(self._interval)

    def problem(self) -> str | None:
        """That a poll does not end, for a liveness check: a broken device can make the kernel's files hang."""
        if self._began is None:
            return None
        seconds = asyncio.get_running_loop().time() - self._began
        return f"a look at the PCI bus has not ended for {seconds:.0f} s" if seconds > self._stuck_after else None

    async def poll(self) -> None:
        self._began = asyncio.get_running_loop().time()
        try:
            shown = await asyncio.to_thread(self._sysfs.bus, self._vendors)
        finally:
            self._began = None
        self._log_hidden(hidden=shown is None)
        found = self.cards if shown is None else tuple(card.pci for card in shown)
        if found is not None and found != self.cards:
            _log.info("cards on the PCI bus", addresses=[card.address for card in found])
            self.cards = found
            self._on_change()

    def _log_hidden(self, *, hidden: bool) -> None:
        """Once each time: while the bus cannot be read, the cards of the last poll stay published."""
        if hidden and not self._hidden:
            _log.warning("PCI bus cannot be read: is /sys mounted, and readable?", known=self.cards is not None)
        self._hidden = hidden
