"""A fleet from nothing to pooled: how long, with how many writes, and what the processes take for it.

Controller and agents run as they do in production, as processes of their own; their own metrics count the requests.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.report import Measurement, at_least, at_most, progress
from gpu_control_plane.agent.backends.hardware import new_machine
from gpu_control_plane.agent.fleet.machines import add_nodes
from gpu_control_plane.api import GPUDevice, GPUPool
from gpu_control_plane.api.examples import device, manifest
from gpu_control_plane.api.install import install
from gpu_control_plane.kube import Client, FieldManager, load_config
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.ports import free_port

_CARDS = 8
_WORKERS = 32
_RAW_WRITES = 60
_US = FieldManager("bench")
_CONTROL_PLANE = (Component.ETCD, Component.APISERVER)
_READS = {"get", "list", "watch"}


class Usage(msgspec.Struct, frozen=True):
    """What a process has asked of the API server and of this machine."""

    writes: float
    cpu_seconds: float
    resident: float


async def measure(nodes: int) -> list[Measurement]:
    with TemporaryDirectory(prefix="bench-") as folder:
        cluster = Cluster(Path(folder), ensure_binaries(_CONTROL_PLANE), Settings(components=_CONTROL_PLANE))
        await asyncio.to_thread(cluster.start)
        try:
            async with Client(load_config(cluster.kubeconfig)) as client:
                await install(client)
                return await _measure(cluster, client, nodes)
        finally:
            await asyncio.to_thread(cluster.stop)


async def _measure(cluster: Cluster, client: Client, nodes: int) -> list[Measurement]:
    cards = nodes * _CARDS
    spec = {"spec": {"assignment": {"requireAnnotation": False}}}
    await client.apply(GPUPool, "training", spec, manager=_US)
    raw_rate = await _raw_rate(client)
    async with (
        _running(cluster, "gpu_control_plane.controller", "--status-host", "127.0.0.1") as controller,
        _running(cluster, "gpu_control_plane.agent", "--simulated") as agents,
    ):
        start = time.perf_counter()
        progress(f"{nodes:,} nodes with {cards:,} cards join")
        await add_nodes(client, [f"node-{number:04}" for number in range(nodes)], new_machine("H200-141", _CARDS))
        await _pooled(client, cards)
        seconds = time.perf_counter() - start
        used, fleet = await _usage(controller), await _usage(agents)
        progress("idle for 20 s")
        await asyncio.sleep(20)
        later, fleet_later = await _usage(controller), await _usage(agents)
    writes = used.writes + fleet.writes
    raw = {"seconds": seconds, "controller": used, "agents": fleet, "raw writes per second": raw_rate}
    raw = msgspec.to_builtins(raw)
    idle = later.writes - used.writes + fleet_later.writes - fleet.writes
    return [
        at_most(
            f"{cards:,} cards from nothing to pooled: the controller's writes a card", used.writes / cards, "", 5, **raw
        ),
        at_most("the agents' writes a card", fleet.writes / cards, "", 1.6),
        at_least("all writes against the server's raw rate", writes / seconds / raw_rate, "x", 0.5),
        at_most("controller, resident", used.resident / 2**20, "MiB", 300),
        at_most("writes of both in 20 idle seconds, leases left out", idle, "", 0),
    ]


async def _raw_rate(client: Client) -> float:
    """Writes a second of cards in full that this server takes from a bare client: the speed limit for everybody."""
    cards = [manifest(device(node=f"raw-{number}", index=0)) for number in range(_WORKERS)]
    names = [str(card["metadata"]["name"]) for card in cards]
    for name, card in zip(names, cards, strict=True):
        await client.apply(GPUDevice, name, {"spec": card["spec"]}, manager=_US)
        await client.apply(GPUDevice, name, {"status": card["status"]}, manager=_US, subresource="status")

    async def send(name: str) -> None:
        for number in range(_RAW_WRITES):
            await client.patch(GPUDevice, name, {"metadata": {"labels": {"bench": str(number)}}})

    start = time.perf_counter()
    await asyncio.gather(*map(send, names))
    rate = len(names) * _RAW_WRITES / (time.perf_counter() - start)
    for name in names:
        await client.delete(GPUDevice, name)
    return rate


async def _pooled(client: Client, cards: int) -> None:
    """Wait for the pool to offer everything, with a sign of life now and then."""
    shown = 0.0
    while True:
        units = (await client.get(GPUPool, "training")).status.units
        available = units.available if units else 0
        if available == cards:
            return
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            progress(f"{available:,} of {cards:,} cards on offer")
        await asyncio.sleep(0.5)


@asynccontextmanager
async def _running(cluster: Cluster, module: str, *arguments: str) -> AsyncIterator[tuple[int, int]]:
    """A process of ours, ready; its process number and the port of its metrics."""
    port = free_port()
    with (cluster.folder / "logs" / f"{module}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments, "--status-port", str(port), "--log-level", "warning"),
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
            stdout=log,
            stderr=log,
        )
    try:
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                        if answer.ok:
                            break
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)
        yield process.pid, port
    finally:
        process.terminate()
        await process.wait()


async def _usage(process: tuple[int, int]) -> Usage:
    pid, port = process
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        families = list(text_string_to_metric_families(await answer.text()))
    writes = sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "kube_api_requests_total"
        and sample.labels["verb"] not in _READS
        and sample.labels["resource"] not in {"leases.coordination.k8s.io", "events.events.k8s.io"}
    )
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()  # noqa: ASYNC240 - no disk behind it
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])  # noqa: ASYNC240 - no disk behind it
    ticks = os.sysconf("SC_CLK_TCK")
    return Usage(writes, (int(stat[11]) + int(stat[12])) / ticks, pages * os.sysconf("SC_PAGE_SIZE"))
