"""How long a cache takes to hold every GPUDevice, against downloading and decoding the same bytes with nothing around.

Each measurement is a process of its own, so that memory and the collector start from nothing.
"""

import asyncio
import resource
import sys
import time
from pathlib import Path

import msgspec

from benchmarks.report import Measurement, at_most, progress
from gpu_control_plane.api import GPUDevice
from gpu_control_plane.kube import Cache, Client, Selection, load_config
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.kube.watch import ApiSource

_ROUNDS = 3


class Result(msgspec.Struct, frozen=True):
    """What one process saw."""

    seconds: float
    cpu_seconds: float
    objects: int
    grown_bytes: int
    longest_stall: float = 0.0


async def measure(kubeconfig: Path) -> list[Measurement]:
    """Bare and cached in turn, several times; the best of each counts, since noise only ever slows."""
    bare, cached = [], []
    for number in range(_ROUNDS):
        progress(f"syncing, round {number + 1} of {_ROUNDS}")
        bare.append(await _child("bare", kubeconfig))
        cached.append(await _child("cache", kubeconfig))
    best_bare = min(bare, key=lambda result: result.seconds)
    best = min(cached, key=lambda result: result.seconds)
    ratio = best.seconds / best_bare.seconds
    raw = {"bare": msgspec.to_builtins(bare), "cache": msgspec.to_builtins(cached)}
    stall = min(result.longest_stall for result in cached) * 1000
    resident = max(result.grown_bytes / result.objects for result in cached) / 1024
    return [
        at_most(f"sync of {best.objects:,} GPUDevices against a bare download", ratio, "x", 1.5, **raw),
        at_most("resident memory an object", resident, "KiB", 6.0),
        at_most("longest stall of the event loop during the sync", stall, "ms", 20.0),
    ]


async def _child(how: str, kubeconfig: Path) -> Result:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.sync", how, str(kubeconfig)), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return msgspec.json.decode(printed, type=Result)


async def _bare(client: Client) -> tuple[int, object]:
    """Download the streaming list and decode each object, as the shortest program would."""

    class Event(msgspec.Struct, gc=False):
        type: str
        object: msgspec.Raw

    events = msgspec.json.Decoder(Event)
    devices = msgspec.json.Decoder(GPUDevice)
    params = {"watch": "true", "allowWatchBookmarks": "true", "sendInitialEvents": "true"}
    params["resourceVersionMatch"] = "NotOlderThan"
    path = GPUDevice.resource.path()
    call = Call(method="GET", path=path, verb="watch", resource="gpudevices", params=params)
    found: list[GPUDevice] = []
    rest = b""
    async with client.transport.stream(call, silence=60) as content:
        async for chunk in content.iter_any():
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            for line in lines:
                event = events.decode(line)
                if event.type == "BOOKMARK":
                    return len(found), found
                if event.type == "ERROR":
                    raise RuntimeError(bytes(event.object).decode())
                found.append(devices.decode(event.object))
    raise AssertionError("the list did not end")


async def _cached(client: Client) -> tuple[int, object]:
    cache = Cache(GPUDevice, ApiSource(client, GPUDevice), metrics=client.metrics)
    cache.index("node", lambda device: (device.spec.node_name,))
    task = asyncio.create_task(cache.run())
    await cache.synced()
    task.cancel()
    return len(cache), cache


async def _watch_stalls(stalls: list[float]) -> None:
    before = time.perf_counter()
    while True:
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        stalls.append(now - before - 0.001)
        before = now


async def _once(how: str, kubeconfig: Path) -> Result:
    async with Client(load_config(kubeconfig)) as client:
        await client.list(GPUDevice, Selection(fields="metadata.name=none"))
        stalls: list[float] = [0.0]
        watcher = asyncio.create_task(_watch_stalls(stalls))
        before, cpu, start = _resident(), time.process_time(), time.perf_counter()
        count, held = await (_bare(client) if how == "bare" else _cached(client))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        grown = _resident() - before
        watcher.cancel()
        del held
    return Result(seconds, cpu, count, grown, max(stalls))


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    result = asyncio.run(_once(sys.argv[1], Path(sys.argv[2])))
    sys.stdout.buffer.write(msgspec.json.encode(result))
