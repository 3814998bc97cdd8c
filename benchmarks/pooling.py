"""A fleet from nothing to pooled: how long, with how many writes, and what the processes take for it.

Controller and agents run as they do in production, as processes of their own; their own metrics count the requests.
"""

import asyncio
import time

import msgspec

from benchmarks.clusters import API_SERVER, WORKERS, cluster_of
from benchmarks.processes import running
from benchmarks.report import Measurement, at_least, at_most, progress
from gpu_control_plane.agent.fleet.machines import add_nodes
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.api import GPUDevice, GPUPool
from gpu_control_plane.api.examples import device, manifest
from gpu_control_plane.kube import Client, FieldManager
from gpu_control_plane.local import Cluster

_CARDS = 8
_RAW_WRITES = 60
_US = FieldManager("bench")


async def measure(nodes: int) -> list[Measurement]:
    async with cluster_of(API_SERVER) as (cluster, client):
        return await _measure(cluster, client, nodes)


async def _measure(cluster: Cluster, client: Client, nodes: int) -> list[Measurement]:
    cards = nodes * _CARDS
    spec = {"spec": {"assignment": {"requireAnnotation": False}}}
    await client.apply(GPUPool, "training", spec, manager=_US)
    raw_rate = await _raw_rate(client)
    async with (
        running(cluster, "gpu_control_plane.controller", "--status-host", "127.0.0.1") as controller,
        running(cluster, "gpu_control_plane.agent", "--simulated") as agents,
    ):
        start = time.perf_counter()
        progress(f"{nodes:,} nodes with {cards:,} cards join")
        await add_nodes(client, [f"node-{number:04}" for number in range(nodes)], new_machine("H200-141", _CARDS))
        await _pooled(client, cards)
        seconds = time.perf_counter() - start
        used, fleet = await controller.usage(), await agents.usage()
        progress("idle for 20 s")
        await asyncio.sleep(20)
        later, fleet_later = await controller.usage(), await agents.usage()
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
    """Writes a second of full GPUDevices that this API server takes from a bare client: the upper limit."""
    cards = [manifest(device(node=f"raw-{number}", index=0)) for number in range(WORKERS)]
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
    """Wait until the pool offers every card, and show progress every ten seconds."""
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
