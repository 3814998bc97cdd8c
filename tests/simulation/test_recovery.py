"""After an outage the agents of a large cluster come back without running the API server down: a model of the server,
and the real caches with their real pauses."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from random import Random

import pytest
import structlog

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.errors import Unreachable
from gpu_control_plane.kube.metrics import Metrics
from gpu_control_plane.kube.recovery import ONE_OF_FEW, ONE_OF_MANY, Recovery
from gpu_control_plane.kube.watch import Batch
from simulation.api_server_model import Thing
from simulation.loop import SimulatedLoop

AGENTS = 5000
WATCHES = 5
"""Of one agent: its Node, NodeFeature, GPUNodeState, GPUDevices and pods."""


class Outage:
    """An API server that breaks all watches at one moment, is away for a while, and then takes every watch again."""

    def __init__(self, begins: float, seconds: float) -> None:
        self._begins = begins
        self._ends = begins + seconds
        self.answered: list[float] = []
        """When a watch was answered since the server is back, in seconds."""

    async def changes(self, _since: str | None) -> AsyncGenerator[Batch[Thing]]:
        now = asyncio.get_running_loop().time()
        if self._begins <= now < self._ends:
            raise Unreachable("connection refused")
        if now >= self._ends:
            self.answered.append(now - self._ends)
        yield Batch([], "5", synced=True)
        await asyncio.sleep(self._begins - now if now < self._begins else 3600.0)
        raise Unreachable("connection reset")

    @property
    def peak(self) -> int:
        """The most watches in a second."""
        return max(Counter(int(moment) for moment in self.answered).values())


def outage(seconds: float, recoveries: list[Recovery], watches: int, *, within: float = 120.0) -> Outage:
    """What a server has seen that was away for so long, `within` seconds after it is back."""
    metrics = Metrics()
    server = Outage(1.0, seconds)
    loop = SimulatedLoop(1, step_limit=10_000_000)

    async def play() -> None:
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(Cache(Thing, server, metrics=metrics, recovery=recovery, rng=loop.rng).run())
                for recovery in recoveries
                for _ in range(watches)
            ]
            await asyncio.sleep(1.0 + seconds + within)
            for task in running:
                task.cancel()

    with structlog.testing.capture_logs():
        loop.run(play())
    return server


def test_five_thousand_agents_come_back_within_two_minutes_at_500_requests_a_second() -> None:
    seen = outage(60.0, [Recovery(ONE_OF_MANY, Random(n)) for n in range(AGENTS)], WATCHES)
    assert len(seen.answered) == AGENTS * WATCHES
    assert seen.peak <= 500


@pytest.mark.parametrize("seconds", [30.0, 600.0])
def test_a_tenth_of_them_does_so_after_other_outages(seconds: float) -> None:
    seen = outage(seconds, [Recovery(ONE_OF_MANY, Random(n)) for n in range(AGENTS // 10)], WATCHES)
    assert len(seen.answered) == AGENTS // 10 * WATCHES
    # A tenth of the limit, and as much again as chance puts into one of a hundred seconds.
    assert seen.peak <= 75


def test_a_short_interruption_is_over_shortly() -> None:
    seen = outage(0.5, [Recovery(ONE_OF_MANY, Random(1))], WATCHES, within=20.0)
    assert len(seen.answered) == WATCHES


@pytest.mark.parametrize("seconds", [1.0, 60.0, 3600.0])
def test_a_controller_is_back_within_ten_seconds(seconds: float) -> None:
    seen = outage(seconds, [Recovery(ONE_OF_FEW, Random(1))], 20, within=10.0)
    assert len(seen.answered) == 20
