"""`/healthz` fails where only a restart helps, and says why."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from gpu_control_plane.kube.controller import Controller
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.signal import Signal
from gpu_control_plane.kube.status_server import StatusServer
from waiting import until


@asynccontextmanager
async def working(*, stuck: int, workers: int) -> AsyncIterator[tuple[Controller, asyncio.Event]]:
    """A controller of which so many reconciles neither end nor let themselves be cancelled."""
    release = asyncio.Event()

    async def reconcile(key: Key) -> None:
        while int(key.name) < stuck and not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    signal = Signal("test")
    controller = Controller("test", reconcile, workers=workers, time_limit=0.02).watch(signal)
    task = asyncio.create_task(controller.run())
    await asyncio.sleep(0)
    signal.fire(*(Key(str(number)) for number in range(4)))
    try:
        yield controller, release
    finally:
        release.set()
        task.cancel()
        await asyncio.wait((task,))


async def test_a_controller_whose_workers_are_all_stuck_is_not_alive() -> None:
    async with working(stuck=2, workers=2) as (controller, release):
        await until(controller.problem)
        assert controller.problem() == "every worker has been at the same key for more than 0.04 s: 0, 1"
        release.set()
        await until(lambda: controller.problem() is None)


async def test_a_controller_with_a_worker_left_is_alive() -> None:
    async with working(stuck=2, workers=3) as (controller, _):
        await asyncio.sleep(0.2)  # several times as long as a reconcile may take
        assert controller.problem() is None


async def test_a_process_whose_event_loop_is_stuck_does_not_answer() -> None:
    server = StatusServer(CollectorRegistry(), host="127.0.0.1", port=0)
    loop = asyncio.new_event_loop()
    ready, release = threading.Event(), threading.Event()

    async def serve() -> None:
        async with server.serving():
            ready.set()
            while not release.is_set():  # noqa: ASYNC110 - set by another thread
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    await asyncio.to_thread(ready.wait, 60)
    url = f"http://127.0.0.1:{server.port}/healthz"
    async with aiohttp.ClientSession() as session:
        assert (await session.get(url)).status == 200
        loop.call_soon_threadsafe(release.wait, 60)
        with pytest.raises(TimeoutError):
            await session.get(url, timeout=aiohttp.ClientTimeout(total=0.5))
    release.set()
    await asyncio.to_thread(thread.join, 60)
    loop.close()
