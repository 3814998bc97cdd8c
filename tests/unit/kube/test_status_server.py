"""What is served beside the registry, and in which order it is asked for."""

import asyncio
from collections.abc import Iterator

import aiohttp
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpu_control_plane.kube.status_server import StatusServer


class Recorded(Collector):
    """A metric of the registry that notes when it is asked for."""

    def __init__(self, happened: list[str]) -> None:
        self._happened = happened

    def collect(self) -> Iterator[Metric]:
        self._happened.append("registry")
        yield GaugeMetricFamily("own", "One.", value=1)


async def test_the_registry_is_written_while_others_wait_for_hardware() -> None:
    happened: list[str] = []
    registry = CollectorRegistry()
    registry.register(Recorded(happened))
    happened.clear()  # It was asked for its names.
    hardware = asyncio.Event()

    async def cards() -> bytes:
        happened.append("hardware asked")
        await hardware.wait()
        happened.append("hardware answered")
        return b"cards 2\n"

    server = StatusServer(registry, host="127.0.0.1", port=0)
    server.add_metrics(cards)
    async with server.serving(), aiohttp.ClientSession() as session:
        asyncio.get_running_loop().call_later(0.05, hardware.set)
        async with session.get(f"http://127.0.0.1:{server.port}/metrics") as answer:
            body = await answer.text()
    assert happened == ["hardware asked", "registry", "hardware answered"]
    assert body.endswith("own 1.0\ncards 2\n")
