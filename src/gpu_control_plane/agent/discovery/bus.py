"""The PCI bus, read again and again: the kernel tells nobody without privileges when a card comes or goes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from gpu_control_plane.agent.backends.sysfs import PCIVendor, Sysfs
from gpu_control_plane.api.gpudevice import PCI

RHYTHM: Final = 60.0
"""Seconds between two looks. Each reads a few small files of this machine and nothing else."""

_log = structlog.get_logger(component="agent.discovery")


class Bus:
    """The cards of these vendors on the bus as last seen; `on_change` is called when they differ from those before."""

    def __init__(
        self, sysfs: Sysfs, vendors: Sequence[PCIVendor], on_change: Callable[[], None], rhythm: float = RHYTHM
    ) -> None:
        self._sysfs = sysfs
        self._vendors = vendors
        self._on_change = on_change
        self._rhythm = rhythm
        self._hidden = False
        self.cards: tuple[PCI, ...] | None = None
        """None before the first look at a bus that can be read."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._rhythm)

    async def look(self) -> None:
        shown = await asyncio.to_thread(self._sysfs.bus, self._vendors)
        self._tell(hidden=shown is None)
        found = self.cards if shown is None else tuple(card.pci for card in shown)
        if found is not None and found != self.cards:
            _log.info("cards on the bus", addresses=[card.address for card in found])
            self.cards = found
            self._on_change()

    def _tell(self, *, hidden: bool) -> None:
        """Once each time: what cannot be read leaves the last word standing."""
        if hidden and not self._hidden:
            _log.warning(
                "the PCI bus cannot be read: is /sys mounted, and may it be read?", known=self.cards is not None
            )
        self._hidden = hidden
