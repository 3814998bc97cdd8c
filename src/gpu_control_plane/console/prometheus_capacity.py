"""What pools had and used in the last day, as Prometheus has seen it: for plots that begin before the console did."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import aiohttp
import msgspec

from gpu_control_plane.console.capacity_history import CapacitySample
from gpu_control_plane.console.expiring_answers import ExpiringAnswers

_DAY_SECONDS: Final = 24 * 3600
_STEP_SECONDS: Final = 300
_PATIENCE_SECONDS: Final = 5.0
_HOLDS_SECONDS: Final = 60.0


class _Series(msgspec.Struct, frozen=True):
    values: tuple[tuple[float, str], ...] = ()


class _Data(msgspec.Struct, frozen=True):
    result: tuple[_Series, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    data: _Data = _Data()


class PrometheusCapacity:
    """Asks a Prometheus that scrapes our controller. An answer holds for a minute."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/query_range"
        self._answers: ExpiringAnswers[str, Sequence[CapacitySample]] = ExpiringAnswers(most=500, now=time.monotonic)

    async def of(self, pool: str) -> Sequence[CapacitySample]:
        """A day of samples; none where Prometheus does not answer or knows nothing of the pool."""
        return await self._answers.get(pool, lambda: self._read(pool), lambda _samples: _HOLDS_SECONDS)

    async def _read(self, pool: str) -> Sequence[CapacitySample]:
        timeout = aiohttp.ClientTimeout(total=_PATIENCE_SECONDS)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                total, used = await asyncio.gather(
                    *(
                        self._ask(session, f'sum(gpupool_capacity_{what}{{pool="{pool}"}})')
                        for what in ("total", "used")
                    )
                )
        except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError):
            return ()
        return tuple(
            CapacitySample(datetime.fromtimestamp(at, UTC), total[at], used[at]) for at in sorted(total.keys() & used)
        )

    async def _ask(self, session: aiohttp.ClientSession, expression: str) -> dict[float, int]:
        now = time.time()
        question: dict[str, str | float] = {
            "query": expression,
            "start": now - _DAY_SECONDS,
            "end": now,
            "step": _STEP_SECONDS,
        }
        async with session.get(self._url, params=question) as answer:
            answer.raise_for_status()
            found = msgspec.json.decode(await answer.read(), type=_Answer).data.result
        return {at: int(float(value)) for series in found for at, value in series.values}
