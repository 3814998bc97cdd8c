"""`Allocate` as the kubelet calls it: on the agent's real socket, one call after the other, while it is scraped."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import grpc
from google.protobuf.message import Message

from benchmarks.node_env import NodeEnv
from benchmarks.quantiles import quantile
from benchmarks.report import Measurement, at_most, progress
from gpu_control_plane.agent.kubelet.endpoint import SERVICE
from gpu_control_plane.agent.kubelet.protocol import deviceplugin_pb2 as wire
from gpu_control_plane.agent.kubelet.sockets import open_channel

_SCRAPE_INTERVAL_SECONDS = 1.0
"""Fifteen times as often as Prometheus usually does."""
_WARM = 200
_RUNS = 8

type Call = grpc.aio.UnaryUnaryMultiCallable[Message, bytes]


async def measure(env: NodeEnv, calls: int) -> list[Measurement]:
    """The best of several runs counts: what else happens on this machine can only make it worse."""
    (socket,) = env.node.device_plugins.glob("gpu-agent-*.sock")
    progress(f"{_RUNS} times {calls:,} allocations")
    async with open_channel(f"unix://{socket}") as channel, _scraped(env):
        allocate: Call = channel.unary_unary(f"/{SERVICE}/Allocate", wire.AllocateRequest.SerializeToString)
        options: Call = channel.unary_unary(f"/{SERVICE}/GetDevicePluginOptions", wire.Empty.SerializeToString)
        requests = [
            wire.AllocateRequest(container_requests=[wire.ContainerAllocateRequest(devices_ids=[uuid])])
            for uuid in env.uuids
        ]
        await _timed(allocate, requests, _WARM)
        runs, bare = [], []
        for _ in range(_RUNS):
            runs.append(await _timed(allocate, requests, calls))
            bare.append(await _timed(options, [wire.Empty()], calls // 2))
    best = min(runs, key=lambda taken: quantile(taken, 0.99))
    raw = {
        "p50 ms": quantile(best, 0.5),
        "longest ms": max(best),
        "p99 ms of each run": [quantile(taken, 0.99) for taken in runs],
        "a call that does nothing, best p50 ms": min(quantile(taken, 0.5) for taken in bare),
        "a call that does nothing, p99 ms of each run": [quantile(taken, 0.99) for taken in bare],
        "scraped every s": _SCRAPE_INTERVAL_SECONDS,
        "load of the machine": os.getloadavg()[0],
    }
    return [at_most(f"Allocate over the socket, {calls:,} calls, p99", quantile(best, 0.99), "ms", 5, **raw)]


async def _timed(call: Call, requests: Sequence[Message], count: int) -> list[float]:
    """Milliseconds that each call took."""
    taken = []
    for number in range(count):
        began = time.perf_counter()
        await call(requests[number % len(requests)])
        taken.append((time.perf_counter() - began) * 1000)
    return taken


@asynccontextmanager
async def _scraped(env: NodeEnv) -> AsyncIterator[None]:
    """Read the agent's metrics all the time, from a process of its own so that the measuring one is not held up."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, env.agent.metrics_url)
    try:
        yield
        assert process.returncode is None, "the scraping process has failed"
    finally:
        process.kill()
        await process.wait()


async def _scrape(url: str) -> None:
    async with aiohttp.ClientSession(raise_for_status=True) as session:
        while True:
            async with session.get(url) as answer:
                await answer.read()
            await asyncio.sleep(_SCRAPE_INTERVAL_SECONDS)


if __name__ == "__main__":
    asyncio.run(_scrape(sys.argv[1]))
