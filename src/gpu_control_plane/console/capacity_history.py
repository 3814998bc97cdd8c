"""What pools had and used since this console was started: a sample a minute, a day of them. Prometheus keeps more."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from gpu_control_plane.console.errors import Unavailable
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.pools import pool_rows

INTERVAL_SECONDS: Final = 60.0
_SAMPLES: Final = 24 * 60
_MOST_POOLS: Final = 500


class CapacitySample(msgspec.Struct, frozen=True):
    """The units of a pool at a moment."""

    at: datetime
    total: int
    used: int
    held_idle: int | None = None
    """None where it was not measured."""


class CapacityHistory:
    """The latest samples of each pool. At most 500 pools are remembered."""

    def __init__(self, fleet: Callable[[], Fleet]) -> None:
        self._fleet = fleet
        self._samples: dict[str, deque[CapacitySample]] = {}

    async def run(self) -> None:
        """Take a sample a minute until cancelled."""
        while True:
            try:
                self.record(self._fleet(), datetime.now(UTC))
            except Unavailable:
                await asyncio.sleep(1)
                continue
            await asyncio.sleep(INTERVAL_SECONDS)

    def record(self, fleet: Fleet, at: datetime) -> None:
        for row in pool_rows(fleet)[:_MOST_POOLS]:
            held = self._samples.setdefault(row.name, deque(maxlen=_SAMPLES))
            held.append(CapacitySample(at, row.total, row.used, row.held_idle or 0))
        for name in self._samples.keys() - fleet.pools.keys():
            del self._samples[name]

    def of(self, pool: str) -> Sequence[CapacitySample]:
        return tuple(self._samples.get(pool, ()))
