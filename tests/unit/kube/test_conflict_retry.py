"""A write that came too late is tried again when the newer version is there: not earlier, and not much later."""

import asyncio
from collections.abc import AsyncGenerator
from typing import ClassVar

import msgspec
import pytest

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.controller import Controller
from gpu_control_plane.kube.errors import Conflict, StaleWrite
from gpu_control_plane.kube.objects import Key, Object, ObjectMeta, Resource
from gpu_control_plane.kube.watch import Batch
from simulation.loop import SimulatedLoop

KEY = Key("node-a")
REQUEST = 0.2
"""Seconds that a write is under way."""


class Machine(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Machine", "machines", namespaced=False)


class Unwatched(Object, frozen=True):
    resource: ClassVar[Resource] = Machine.resource


class Stand(msgspec.Struct):
    """One object that another writer changes at intervals, a watch of it that lags behind, and one write of ours."""

    every: float
    lag: float
    kind: type[Object] = Machine
    version: int = 1
    busy_until: float = 1000.0
    attempts: list[float] = []
    done_at: float = 0.0

    async def changes(self, since: str | None) -> AsyncGenerator[Batch[Machine]]:
        assert since is None
        seen: asyncio.Queue[int] = asyncio.Queue()
        other_writer = asyncio.create_task(self._write_on(seen))
        yield _batch(self.version, synced=True)
        while not other_writer.cancelled():
            yield _batch(await seen.get())

    async def _write_on(self, seen: asyncio.Queue[int]) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() + self.every < self.busy_until:
            await asyncio.sleep(self.every)
            self.version += 1
            loop.call_later(self.lag, seen.put_nowait, self.version)

    async def run(self, *, until: float) -> None:
        cache = Cache(Machine, self)

        async def write(_key: Key) -> None:
            if (held := cache.at(KEY)) is not None and not self.done_at:
                await self._write(held.metadata.resource_version)

        # Writes of others wake no key here.
        controller = Controller("late", write).watch(cache, when=lambda old, _new: old is None)
        running = [asyncio.create_task(cache.run())]
        await asyncio.sleep(self.every - REQUEST / 2)  # So that the first write is overtaken on its way.
        running.append(asyncio.create_task(controller.run()))
        await asyncio.sleep(until)
        for task in running:
            task.cancel()
        await asyncio.wait(running)

    async def _write(self, read: str) -> None:
        await asyncio.sleep(REQUEST)
        self.attempts.append(asyncio.get_running_loop().time())
        if read != str(self.version):
            refused = Conflict(409, "Conflict", "the object has been modified")
            refused.stale_write = StaleWrite(self.kind, KEY, read)
            raise refused
        self.done_at = self.attempts[-1]


@pytest.mark.parametrize("lag", [0.15, 0.01], ids=["not-seen-yet", "seen-meanwhile"])
def test_the_second_attempt_succeeds(lag: float) -> None:
    for seed in range(20):
        stand = Stand(every=0.4, lag=lag)
        SimulatedLoop(seed).run(stand.run(until=10.0))
        assert len(stand.attempts) == 2
        assert stand.done_at == pytest.approx(0.4 + max(lag, REQUEST / 2) + REQUEST, abs=0.01)


def test_what_no_cache_shows_is_tried_again_after_the_usual_pause() -> None:
    stand = Stand(every=5.0, lag=0.01, kind=Unwatched)
    SimulatedLoop(1).run(stand.run(until=10.0))
    assert len(stand.attempts) == 2
    assert stand.done_at < 5.5


def test_against_a_writer_that_is_always_faster_it_slows_down_and_succeeds_when_that_ends() -> None:
    stand = Stand(every=0.15, lag=0.1, busy_until=60.0)
    SimulatedLoop(1).run(stand.run(until=70.0))
    assert len(stand.attempts) < 5 + 60 / 0.5
    assert 60.0 - stand.every < stand.done_at < 62.0


def _batch(version: int, *, synced: bool = False) -> Batch[Machine]:
    item = Machine(metadata=ObjectMeta(name=KEY.name, uid="1", resource_version=str(version)))
    return Batch([(item, False)], str(version), synced=synced)
