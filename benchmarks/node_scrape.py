"""A scrape against the bare calls it makes: what HTTP, labels, text and threads add to reading the cards. Simulated.

Simulated cards answer in microseconds, and against those anything is slow. So here they take as long as a driver does,
at least: a scrape of a card is some forty questions to NVML. What a scrape adds by itself is in the raw part. The same
is measured on a real card, against the real calls, by tests/gpu/test_exporter.py.
"""

import time
from collections.abc import Awaitable, Callable, Mapping

import aiohttp

from benchmarks.node_env import CARDS
from benchmarks.report import Measurement, at_most, progress
from gpu_control_plane.agent.backends.interface import Instance
from gpu_control_plane.agent.node.exporting import CardMetrics
from gpu_control_plane.agent.node.hardware_watch import HardwareWatch
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.kube.metrics import Metrics
from gpu_control_plane.kube.status_server import StatusServer

_NODE = "node-a"
_DRIVER_SECONDS = 0.002
_RUNS = 10


class _Cards(SimulatedBackend):
    """Simulated cards that take their time, off the interpreter's lock, as a driver does."""

    def __init__(self, seconds: float) -> None:
        super().__init__(_NODE, new_machine("H200-141", CARDS))
        self._seconds = seconds

    def samples(self, address: str, instance: Instance | None = None) -> Mapping[str, float]:
        if self._seconds:
            time.sleep(self._seconds)
        return super().samples(address, instance)


async def measure() -> list[Measurement]:
    progress(f"scrapes of {CARDS} cards")
    bare, whole = await _compare(_DRIVER_SECONDS, passes=5)
    quick, text = await _compare(0.0, passes=100)
    raw = {
        "bare calls ms": bare * 1000,
        "scrape ms": whole * 1000,
        "cards that answer at once, bare calls ms": quick * 1000,
        "cards that answer at once, scrape ms": text * 1000,
    }
    name = f"scrape of {CARDS} simulated cards that answer in {_DRIVER_SECONDS * 1000:g} ms each, against bare calls"
    return [at_most(name, whole / bare, "x", 1.2, **raw)]


async def _compare(seconds: float, passes: int) -> tuple[float, float]:
    """The quickest of several runs, in seconds a pass: the bare calls, and the whole scrape."""
    backend = _Cards(seconds)
    watch = HardwareWatch(_NODE, lambda: backend, lambda: None)
    watch.acquire_driver()
    await watch.probe()
    assert watch.snapshot is not None
    metrics = CardMetrics(_NODE, watch, dict)
    metrics.describe(watch.snapshot)
    addresses = [card.address for card in watch.snapshot.observed.values()]

    async def bare() -> None:
        for address in addresses:
            backend.samples(address)

    status = StatusServer(Metrics().registry, host="127.0.0.1", port=0)
    status.add_metrics(metrics.exposition)
    async with status.serving(), aiohttp.ClientSession() as session:

        async def scrape() -> None:
            async with session.get(f"http://127.0.0.1:{status.port}/metrics") as answer:
                await answer.read()

        found = [(await _run(bare, passes), await _run(scrape, passes)) for _ in range(_RUNS)]
    await watch.release_driver()
    return min(run[0] for run in found), min(run[1] for run in found)


async def _run(once: Callable[[], Awaitable[None]], passes: int) -> float:
    began = time.perf_counter()
    for _ in range(passes):
        await once()
    return (time.perf_counter() - began) / passes
