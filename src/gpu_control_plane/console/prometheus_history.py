"""The last day of pools and cards, as Prometheus has seen it: for plots that begin before the console did."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import aiohttp
import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.console.capacity_history import CapacitySample
from gpu_control_plane.console.expiring_answers import ExpiringAnswers
from gpu_control_plane.views.cards import Readings

_DAY_SECONDS: Final = 24 * 3600
_STEP_SECONDS: Final = 300
_PATIENCE_SECONDS: Final = 5.0
_HOLDS_SECONDS: Final = 60.0
_MOST_CARDS: Final = 50
"""A day of a card is about 50 KB."""

type _Values = dict[int, int]
"""By the second at which they were so."""


class _Series(msgspec.Struct, frozen=True):
    values: tuple[tuple[float, str], ...] = ()


class _Data(msgspec.Struct, frozen=True):
    result: tuple[_Series, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    data: _Data = _Data()


class PrometheusHistory:
    """Asks a Prometheus that scrapes our controller and what measures cards. An answer holds for a minute."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/query_range"
        self._pools: ExpiringAnswers[str, Sequence[CapacitySample]] = ExpiringAnswers(most=500, now=time.monotonic)
        self._cards: ExpiringAnswers[str, Sequence[Readings]] = ExpiringAnswers(most=_MOST_CARDS, now=time.monotonic)

    async def of_pool(self, pool: str) -> Sequence[CapacitySample]:
        """A day of samples; none where Prometheus does not answer or knows nothing of the pool."""
        return await self._pools.get(pool, lambda: self._read_pool(pool), lambda _samples: _HOLDS_SECONDS)

    async def of_card(self, card: GPUDevice) -> Sequence[Readings]:
        """A day of readings, with gaps where nothing was measured; none as for pools."""
        chosen = _series_of(card)
        return await self._cards.get(chosen, lambda: self._read_card(chosen), lambda _readings: _HOLDS_SECONDS)

    async def _read_pool(self, pool: str) -> Sequence[CapacitySample]:
        _, (total, used) = await self._ask_all(
            *(f"sum(gpupool_capacity_{what}{{pool={_quoted(pool)}}})" for what in ("total", "used"))
        )
        return tuple(CapacitySample(_moment(at), total[at], used[at]) for at in sorted(total.keys() & used))

    async def _read_card(self, chosen: str) -> Sequence[Readings]:
        # Containers that share a card have a series each of what they use of it, and all the same of its heat.
        whole = f'{{{chosen},GPU_I_ID=""}}'
        moments, (busy, memory, temperature, power) = await self._ask_all(
            f"clamp_max(sum(max by (namespace, pod, container) (DCGM_FI_DEV_GPU_UTIL{whole})), 100)",
            f"sum(max by (namespace, pod, container) (DCGM_FI_DEV_FB_USED{whole}))",
            f"max(DCGM_FI_DEV_GPU_TEMP{{{chosen}}})",
            f"max(DCGM_FI_DEV_POWER_USAGE{{{chosen}}})",
        )
        first = min((at for values in (busy, memory, temperature, power) for at in values), default=None)
        return tuple(
            Readings(
                at=_moment(at),
                utilisation=busy.get(at),
                memory_used_mib=memory.get(at),
                temperature=temperature.get(at),
                power=power.get(at),
            )
            for at in moments
            if first is not None and at >= first
        )

    async def _ask_all(self, *expressions: str) -> tuple[range, Sequence[_Values]]:
        """The moments that were asked for, the same for every expression, and what each was at those it is known at."""
        now = int(time.time())
        moments = range(now - _DAY_SECONDS, now + 1, _STEP_SECONDS)
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PATIENCE_SECONDS)) as session:
                return moments, await asyncio.gather(*(self._ask(session, each, moments) for each in expressions))
        except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError, ValueError):
            return moments, [{} for _ in expressions]

    async def _ask(self, session: aiohttp.ClientSession, expression: str, moments: range) -> _Values:
        question: dict[str, str | int] = {
            "query": expression,
            "start": moments[0],
            "end": moments[-1],
            "step": moments.step,
        }
        async with session.get(self._url, params=question) as answer:
            answer.raise_for_status()
            found = msgspec.json.decode(await answer.read(), type=_Answer).data.result
        return {int(at): int(float(value)) for series in found for at, value in series.values}


def _series_of(card: GPUDevice) -> str:
    """By which labels Prometheus knows the card: its identity, or its place where the driver never told that."""
    hardware = card.status.hardware
    if hardware is not None and hardware.uuid is not None:
        return f"UUID={_quoted(hardware.uuid)}"
    bus_id = f"{card.spec.pci_address.upper():0>16}"
    return f"Hostname={_quoted(card.spec.node_name)},pci_bus_id={_quoted(bus_id)}"


def _quoted(text: str) -> str:
    """As PromQL writes strings, which is as JSON does."""
    return msgspec.json.encode(text).decode()


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
