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
    longest_work: float = 0.0
    """The most CPU time spent without letting the loop go round: what a waiting callback owes to us."""
    longest_gap: float = 0.0
    """The longest the loop did not go round on the clock, the kernel's turns for other processes included."""


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
    stall = max(result.longest_work for result in cached) * 1000
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


class _Stalls:
    """A callback that wants its turn every millisecond and notes how long it had to wait for it."""

    longest_work = 0.0
    longest_gap = 0.0

    async def watch(self) -> None:
        while True:
            worked, clock = time.thread_time(), time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest_work = max(self.longest_work, time.thread_time() - worked)
            self.longest_gap = max(self.longest_gap, time.perf_counter() - clock - 0.001)


async def _once(how: str, kubeconfig: Path) -> Result:
    async with Client(load_config(kubeconfig)) as client:
        await client.list(GPUDevice, Selection(fields="metadata.name=none"))
        stalls = _Stalls()
        watcher = asyncio.create_task(stalls.watch())
        before, cpu, start = _resident(), time.process_time(), time.perf_counter()
        count, held = await (_bare(client) if how == "bare" else _cached(client))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        grown = _resident() - before
        watcher.cancel()
        del held
    return Result(seconds, cpu, count, grown, stalls.longest_work, stalls.longest_gap)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    result = asyncio.run(_once(sys.argv[1], Path(sys.argv[2])))
    sys.stdout.buffer.write(msgspec.json.encode(result))
