"""How long a cache takes to sync every GPUDevice, against downloading and decoding the same bytes with nothing else,
and how long the event loop does not answer meanwhile.

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
_LONGEST_GAP_MS = 20.0
_HEARTBEAT_SECONDS = 0.001


class Result(msgspec.Struct, frozen=True):
    """What one process saw."""

    seconds: float
    cpu_seconds: float
    objects: int
    grown_bytes: int
    longest_gap: float = 0.0
    """The longest wall-clock time for which a task that was due had to wait for the event loop, time that the kernel
    gave to other processes included: what users feel."""
    longest_work: float = 0.0
    """The most thread CPU time between two turns of the event loop: the part of such a gap that is our own work."""


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
    gap, work = (max(getattr(result, name) for result in cached) * 1000 for name in ("longest_gap", "longest_work"))
    resident = max(result.grown_bytes / result.objects for result in cached) / 1024
    return [
        at_most(f"sync of {best.objects:,} GPUDevices against a bare download", ratio, "x", 1.5, **raw),
        at_most("resident memory an object", resident, "KiB", 6.0),
        at_most("longest gap of the event loop during the sync, wall clock", gap, "ms", _LONGEST_GAP_MS),
        at_most("of it work of this process, thread CPU time", work, "ms", 20.0),
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


class _Heartbeat:
    """A task that is due every millisecond and records how late it runs."""

    longest_gap = 0.0
    longest_work = 0.0

    async def run(self) -> None:
        while True:
            worked, clock = time.thread_time(), time.perf_counter()
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            self.longest_gap = max(self.longest_gap, time.perf_counter() - clock - _HEARTBEAT_SECONDS)
            self.longest_work = max(self.longest_work, time.thread_time() - worked)


async def _once(how: str, kubeconfig: Path) -> Result:
    async with Client(load_config(kubeconfig)) as client:
        await client.list(GPUDevice, Selection(fields="metadata.name=none"))
        heartbeat = _Heartbeat()
        beating = asyncio.create_task(heartbeat.run())
        before, cpu, start = _resident(), time.process_time(), time.perf_counter()
        count, held = await (_bare(client) if how == "bare" else _cached(client))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        grown = _resident() - before
        beating.cancel()
        del held
    return Result(seconds, cpu, count, grown, heartbeat.longest_gap, heartbeat.longest_work)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    result = asyncio.run(_once(sys.argv[1], Path(sys.argv[2])))
    sys.stdout.buffer.write(msgspec.json.encode(result))
