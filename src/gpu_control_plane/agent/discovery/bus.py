"""The PCI bus, read again and again: the kernel tells nobody without privileges when a card comes or goes."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from gpu_control_plane.agent.backends.host import Host
from gpu_control_plane.api.gpudevice import PCI

RHYTHM: Final = 60.0
"""Seconds between two looks. Each reads a few small files of this machine and nothing else."""

_log = structlog.get_logger(component="agent.discovery")


class Bus:
    """The cards on the bus as last seen; `on_change` is called when they differ from those before."""

    def __init__(self, host: Host, on_change: Callable[[], None], rhythm: float = RHYTHM) -> None:
        self._host = host
        self._on_change = on_change
        self._rhythm = rhythm
        self.cards: tuple[PCI, ...] | None = None
        """None before the first look."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._rhythm)

    async def look(self) -> None:
        found = tuple(card.pci for card in await asyncio.to_thread(self._host.cards))
        if found != self.cards:
            _log.info("cards on the bus", addresses=[card.address for card in found])
            self.cards = found
            self._on_change()
