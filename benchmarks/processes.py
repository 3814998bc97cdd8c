"""Processes of ours as they run in production, measured from outside: by their own metrics and by /proc."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gpu_control_plane.local import Cluster
from gpu_control_plane.local.ports import free_port

_READS = {"get", "list", "watch"}
_UNCOUNTED = {"leases.coordination.k8s.io", "events.events.k8s.io"}
_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct, frozen=True):
    """What a process has asked of the API server and of this machine."""

    writes: float
    """Leases and Events left out."""
    requests: float
    """All of them, the starts of watches included."""
    cpu_seconds: float
    resident: float
    peak: float


class Process:
    """A running process of ours, and the port of its metrics."""

    def __init__(self, module: str, process: asyncio.subprocess.Process, port: int, log: Path) -> None:
        self.pid = process.pid
        self._module = module
        self._process = process
        self._port = port
        self._log = log

    @classmethod
    async def start(cls, cluster: Cluster, module: str, *arguments: str, log: Path | None = None) -> Self:
        """Start `python -m module` against the cluster, without waiting until it is ready; its output is appended to
        the log."""
        port = free_port()
        log = log or cluster.folder / "logs" / f"{module}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, *arguments, "--status-port", str(port)),
                env={**python_environ(), "KUBECONFIG": str(_json_kubeconfig(cluster))},
                stdout=output,
                stderr=output,
            )
        return cls(module, process, port, log)

    async def ready(self) -> None:
        """Wait until it says that it is ready."""
        async with aiohttp.ClientSession() as session:
            while not await self._is_ready(session):
                if self._process.returncode is not None:
                    output = await asyncio.to_thread(self._log.read_text)
                    raise RuntimeError(f"{self._module} has ended: {output[-2000:]}")
                await asyncio.sleep(0.1)

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/metrics"

    async def usage(self) -> Usage:
        requests = await self.samples("kube_api_requests_total")
        counted = [sample for sample in requests if sample.labels["resource"] not in _UNCOUNTED]
        status = dict(line.split(":", 1) for line in self._read("status").splitlines())
        return Usage(
            writes=sum(sample.value for sample in counted if sample.labels["verb"] not in _READS),
            requests=sum(sample.value for sample in counted),
            cpu_seconds=self.cpu_seconds(),
            resident=_bytes(status["VmRSS"]),
            peak=_bytes(status["VmHWM"]),
        )

    async def total(self, name: str, **labels: str) -> float:
        """The sum of a metric over all series that have these labels."""
        found = [sample for sample in await self.samples(name) if sample.name == name]
        return sum(sample.value for sample in found if labels.items() <= sample.labels.items())

    async def samples(self, prefix: str = "") -> list[Sample]:
        """Its metrics as Prometheus would read them; those whose names begin with `prefix`."""
        async with aiohttp.ClientSession() as session, session.get(self.metrics_url) as answer:
            text = await answer.text()
        # A fleet has thousands of series: only those that are asked for are parsed.
        lines = "\n".join(line for line in text.splitlines() if line.startswith(prefix)) if prefix else text
        families = text_string_to_metric_families(lines)
        return [sample for family in families for sample in family.samples]

    def cpu_seconds(self) -> float:
        fields = self._read("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self) -> dict[str, int]:
        return memory(self.pid)

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        try:
            async with session.get(f"http://127.0.0.1:{self._port}/readyz") as answer:
                return answer.ok
        except aiohttp.ClientError:
            return False

    def _read(self, name: str) -> str:
        return Path(f"/proc/{self.pid}/{name}").read_text()


@asynccontextmanager
async def running(cluster: Cluster, module: str, *arguments: str) -> AsyncIterator[Process]:
    """A process of ours, ready when the block begins and stopped at its end; it logs warnings only."""
    process = await Process.start(cluster, module, *arguments, "--log-level", "warning")
    try:
        await process.ready()
        yield process
    finally:
        await process.stop()


def python_environ() -> dict[str, str]:
    """The environment of this process, with compiled Python kept on disk, as it is in an image."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def memory(pid: int) -> dict[str, int]:
    """What a process has in memory, in bytes, by the kernel's names: `Rss` is all, `Private_Dirty` its own alone."""
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return {fields[0].rstrip(":"): int(fields[1]) * 1024 for fields in lines}


def _bytes(text: str) -> float:
    """`  12345 kB`, as the kernel writes it, in bytes."""
    return int(text.split(maxsplit=1)[0]) * 1024


def _json_kubeconfig(cluster: Cluster) -> Path:
    """The cluster's kubeconfig as JSON: a pod needs no PyYAML to reach the API server, so neither must these."""
    path = cluster.folder / "kubeconfig.json"
    path.write_bytes(msgspec.json.encode(msgspec.yaml.decode(cluster.kubeconfig.read_bytes())))
    return path
