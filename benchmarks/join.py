"""A thousand nodes that join at once: how long until all are settled, and with how many writes.

Agents are played by a client that publishes what they would. Inventory and bootstrap run as they do in production, in a
process of their own. The bare client publishes the same and writes what comes of it, as fast as the API server takes
it: no controller can be much faster. Then the controller is left alone, and started anew.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import msgspec

from benchmarks.clusters import API_SERVER, cluster_of, each
from benchmarks.join_writes import Write, consequences, fewest, report
from benchmarks.processes import Process, running
from benchmarks.report import Measurement, at_most, progress
from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.names import NodeCondition
from gpu_control_plane.api.node import Node
from gpu_control_plane.kube import Cache, Client, Condition, Object, Resource
from gpu_control_plane.kube.conditions import is_true
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.local import Cluster

_CONTROLLER = "gpu_control_plane.controller"
_ARGUMENTS = ("--without", "pools", "--without", "operator", "--status-host", "127.0.0.1")
_STALLED = 180.0
"""Seconds without any progress after which waiting is given up."""


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _State(Object, frozen=True):
    """A GPUNodeState by nothing but its conditions."""

    resource: ClassVar[Resource] = GPUNodeState.resource

    status: _Status = _Status()

    @property
    def ready(self) -> bool:
        return is_true(self.status.conditions, NodeCondition.READY_FOR_POOLING)


async def measure(nodes: int, cards: int, idle: float) -> list[Measurement]:
    """The bare client writes one half before the fleet joins and the other after it, on a server of its own: whatever
    else keeps the machine busy slows both."""
    async with _cluster(nodes) as (_, other), _cluster(nodes) as (cluster, client):
        everyone = await other.list(Node)
        bare = await _bare(other, everyone[::2], cards)
        async with running(cluster, _CONTROLLER, *_ARGUMENTS) as process:
            seconds, found = await _join(client, process, nodes, cards)
            bare += await _bare(other, everyone[1::2], cards)
            found += await _quiet(process, nodes, idle)
        found += await _restart(cluster, nodes)
    raw = {"seconds": seconds, "bare seconds": bare}
    name = f"{nodes:,} nodes with {nodes * cards:,} cards join at once, against a bare client"
    return [at_most(name, seconds / bare, "x", 1.5, **raw), *found]


async def _join(client: Client, process: Process, nodes: int, cards: int) -> tuple[float, list[Measurement]]:
    """The seconds that it took, and what it cost."""
    before, there = await process.usage(), await client.list(Node)
    progress(f"{nodes:,} nodes report {nodes * cards:,} cards")
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(each(there, lambda node: report(node, cards).send(client)))
        group.create_task(_until_ready(client, nodes))
    seconds, used = time.perf_counter() - start, await process.usage()
    progress(f"all settled after {seconds:.1f} s")
    raw = msgspec.to_builtins({"seconds": seconds, "before": before, "after": used})
    cpu = (used.cpu_seconds - before.cpu_seconds) / nodes * 1000
    return seconds, [
        at_most("writes a node", (used.writes - before.writes) / nodes, "", fewest(cards), **raw),
        at_most("CPU seconds a thousand nodes", cpu, "s", 60),
        at_most("memory at most", used.peak / 2**20, "MiB", 300),
    ]


async def _quiet(process: Process, nodes: int, idle: float) -> list[Measurement]:
    progress("the last Events are written")
    await _still(lambda: process.total("kube_events_written_total"))
    written, dropped = (
        await process.total("kube_events_written_total"),
        await process.total("kube_events_dropped_total"),
    )
    before = await process.usage()
    progress(f"idle for {idle:g} s")
    await asyncio.sleep(idle)
    after = await process.usage()
    return [
        at_most("Events a node", written / nodes, "", 2, dropped=dropped),
        at_most("Events dropped", dropped, "", 0),
        at_most(f"writes in {idle:g} idle seconds", after.writes - before.writes, "", 0),
    ]


async def _restart(cluster: Cluster, nodes: int) -> list[Measurement]:
    """The same again with everything there: one look at each node, and nothing to do."""
    progress("the controller is started anew")
    start = time.perf_counter()
    async with running(cluster, _CONTROLLER, *_ARGUMENTS) as process:
        await _looked_at(process, nodes)
        seconds = time.perf_counter() - start
        await _still(lambda: process.total("kube_reconciles_total"))
        used, written = await process.usage(), await process.total("kube_events_written_total")
    raw = msgspec.to_builtins({"usage": used})
    return [
        at_most("a restart: seconds until every node was looked at", seconds, "s", max(10.0, nodes / 50), **raw),
        at_most("a restart: writes", used.writes, "", 0),
        at_most("a restart: Events", written, "", 0),
    ]


async def _bare(client: Client, nodes: Sequence[Node], cards: int) -> float:
    """Seconds that a client needs which has nothing to find out."""
    progress(f"a bare client writes what {len(nodes):,} nodes need")
    reports = [report(node, cards) for node in nodes]
    chains = [chain for node in nodes for chain in consequences(node.name, cards)]

    async def send(chain: tuple[Write, ...]) -> None:
        for write in chain:
            await write.send(client)

    start = time.perf_counter()
    await each(reports, lambda write: write.send(client))
    await each(chains, send)
    return time.perf_counter() - start


@asynccontextmanager
async def _cluster(nodes: int) -> AsyncIterator[tuple[Cluster, Client]]:
    """An API server with Nodes of which nothing is known yet."""
    async with cluster_of(API_SERVER) as (cluster, client):
        progress(f"{nodes:,} Nodes register")
        names = (f"gpu-{number:04}" for number in range(nodes))
        await each(names, lambda name: client.create(Node, {"metadata": {"name": name}}))
        yield cluster, client


async def _until_ready(client: Client, nodes: int) -> None:
    """Follow the fleet as any client would, with a sign of life now and then."""
    states = Cache(_State, ApiSource(client, _State), metrics=client.metrics)
    following = asyncio.create_task(states.run())
    try:
        await states.synced()
        done, moved, shown = 0, time.monotonic(), time.monotonic()
        while done < nodes:
            await asyncio.sleep(0.2)
            now, before, done = time.monotonic(), done, sum(state.ready for state in states)
            if done != before:
                moved = now
            if now - moved > _STALLED:
                raise RuntimeError(f"nothing moves: {done:,} of {nodes:,} nodes are settled")
            if now - shown > 10:
                shown = now
                progress(f"{done:,} of {nodes:,} nodes settled")
    finally:
        following.cancel()


async def _looked_at(process: Process, nodes: int) -> None:
    """Wait until both controllers have looked at every node and nothing waits any more."""
    deadline = time.monotonic() + _STALLED
    while True:
        looks = [await process.total("kube_reconciles_total", controller=name) for name in ("inventory", "bootstrap")]
        waiting = await process.total("kube_queue_depth") + await process.total("kube_workers_busy")
        if min(looks) >= nodes and not waiting:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"of {nodes:,} nodes, inventory and bootstrap looked at {looks}")
        await asyncio.sleep(0.25)


async def _still(count: Callable[[], Awaitable[float]], seconds: float = 3.0) -> None:
    """Wait until a count has stayed the same for so long."""
    held, since = await count(), time.monotonic()
    while time.monotonic() - since < seconds:
        await asyncio.sleep(1)
        if (now := await count()) != held:
            held, since = now, time.monotonic()
