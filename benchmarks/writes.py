"""How fast a controller changes objects, against a bare client that sends the same patches as fast as it can."""

import asyncio
import time
from pathlib import Path

import msgspec

from benchmarks.report import Measurement, at_least, progress
from gpu_control_plane.api import GPUDevice
from gpu_control_plane.kube import Cache, Client, Controller, Key, load_config
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.kube.watch import ApiSource

_WORKERS = 32
_ROUNDS = 2


async def measure(kubeconfig: Path, count: int) -> list[Measurement]:
    async with Client(load_config(kubeconfig)) as client:
        names = [device.name async for page in client.pages(GPUDevice) for device in page.items][:count]
        bare, controlled = [], []
        for number in range(_ROUNDS):
            progress(f"patching {count:,} objects, round {number + 1} of {_ROUNDS}")
            bare.append(count / await _bare(client, names, f"bare-{number}"))
            controlled.append(count / await _controlled(client, set(names), f"controlled-{number}"))
    rate = max(controlled) / max(bare)
    raw = {"bare per second": bare, "controller per second": controlled}
    return [at_least(f"a controller that patches {count:,} objects, against a bare client", rate, "x", 0.8, **raw)]


def _body(value: str) -> dict[str, object]:
    return {"metadata": {"annotations": {"bench.example/value": value}}}


async def _bare(client: Client, names: list[str], value: str) -> float:
    """Nothing but requests: the bodies are ready and the answers are thrown away."""
    body = msgspec.json.encode(_body(value))
    waiting = list(names)

    async def send() -> None:
        while waiting:
            path = GPUDevice.resource.path(None, waiting.pop())
            await client.transport.send(
                Call(
                    method="PATCH",
                    path=path,
                    verb="patch",
                    resource="gpudevices",
                    body=body,
                    content_type="application/merge-patch+json",
                )
            )

    start = time.perf_counter()
    await asyncio.gather(*(send() for _ in range(_WORKERS)))
    return time.perf_counter() - start


async def _controlled(client: Client, names: set[str], value: str) -> float:
    """The whole way: cache, queue, reconcile, patch, and the events of the patches coming back."""
    cache = Cache(GPUDevice, ApiSource(client, GPUDevice), metrics=client.metrics)
    done = asyncio.Event()
    left = set(names)

    async def reconcile(key: Key) -> None:
        device = cache.at(key)
        if device is None or key.name not in names:
            return
        if device.metadata.annotations.get("bench.example/value") != value:
            await client.patch(GPUDevice, key.name, _body(value), resource_version=device.metadata.resource_version)
            left.discard(key.name)
            if not left:
                done.set()

    watching = asyncio.create_task(cache.run())
    await cache.synced()
    controller = Controller("bench", reconcile, workers=_WORKERS, metrics=client.metrics).watch(cache)
    start = time.perf_counter()
    working = asyncio.create_task(controller.run())
    await done.wait()
    seconds = time.perf_counter() - start
    for task in (working, watching):
        task.cancel()
    await asyncio.wait((working, watching))
    return seconds
