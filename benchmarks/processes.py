"""Processes of ours as they run in production, watched from outside: their own metrics and the kernel's books."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gpu_control_plane.local import Cluster
from gpu_control_plane.local.ports import free_port

_READS = {"get", "list", "watch"}
_UNCOUNTED = {"leases.coordination.k8s.io", "events.events.k8s.io"}


class Usage(msgspec.Struct, frozen=True):
    """What a process has asked of the API server and of this machine."""

    writes: float
    """Leases and Events left out."""
    requests: float
    """All of them, watches that were begun among them."""
    cpu_seconds: float
    resident: float
    peak: float


class Process(msgspec.Struct, frozen=True):
    """A running process and the port of its metrics."""

    pid: int
    port: int

    async def usage(self) -> Usage:
        requests = await self._samples("kube_api_requests_total")
        samples = [sample for sample in requests if sample.labels["resource"] not in _UNCOUNTED]
        stat = self._read("stat").rpartition(")")[2].split()
        status = dict(line.split(":", 1) for line in self._read("status").splitlines())
        ticks = os.sysconf("SC_CLK_TCK")
        return Usage(
            writes=sum(sample.value for sample in samples if sample.labels["verb"] not in _READS),
            requests=sum(sample.value for sample in samples),
            cpu_seconds=(int(stat[11]) + int(stat[12])) / ticks,
            resident=_kilobytes(status["VmRSS"]),
            peak=_kilobytes(status["VmHWM"]),
        )

    async def total(self, name: str, **labels: str) -> float:
        """The sum of a metric over all series that have these labels."""
        found = await self._samples(name)
        return sum(sample.value for sample in found if labels.items() <= sample.labels.items())

    async def _samples(self, name: str) -> list[Sample]:
        url = f"http://127.0.0.1:{self.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            text = await answer.text()
        # A fleet has thousands of series of which one is asked for.
        lines = "\n".join(line for line in text.splitlines() if line.startswith(name))
        families = text_string_to_metric_families(lines)
        return [sample for family in families for sample in family.samples if sample.name == name]

    def _read(self, name: str) -> str:
        return Path(f"/proc/{self.pid}/{name}").read_text()


@asynccontextmanager
async def running(cluster: Cluster, module: str, *arguments: str) -> AsyncIterator[Process]:
    """Start a process of ours; it is ready when the block begins."""
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
            while not await _ready(session, port):
                if process.returncode is not None:
                    said = await asyncio.to_thread(Path(log.name).read_text)
                    raise RuntimeError(f"{module} has ended: {said[-2000:]}")
                await asyncio.sleep(0.1)
        yield Process(process.pid, port)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _ready(session: aiohttp.ClientSession, port: int) -> bool:
    try:
        async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False


def _kilobytes(text: str) -> float:
    """`  12345 kB`, as the kernel writes it, in bytes."""
    return int(text.split(maxsplit=1)[0]) * 1024
