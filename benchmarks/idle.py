"""What a process with full caches and a leader's duties asks of the API server while nothing happens."""

import asyncio
from collections import Counter
from pathlib import Path

from benchmarks.report import Measurement, at_most, progress
from gpu_control_plane.api import GPUDevice, GPUNodeState, GPUPool
from gpu_control_plane.kube import Key, Metrics, Runtime

_READS = {"get", "list", "watch"}


async def measure(kubeconfig: Path, seconds: float = 60.0) -> list[Measurement]:
    runtime = Runtime("bench", kubeconfig=kubeconfig, namespace="default", status_port=None)

    async def reconcile(_key: Key) -> None:
        return

    for kind in (GPUDevice, GPUNodeState, GPUPool):
        runtime.controller(kind.resource.plural, reconcile).watch(runtime.cache(kind))
    running = asyncio.create_task(runtime.run())
    while not runtime.leading:
        await asyncio.sleep(0.1)
    await asyncio.sleep(10.0)
    before = _requests(runtime.metrics)
    progress(f"idle for {seconds:g} s")
    await asyncio.sleep(seconds)
    after = _requests(runtime.metrics)
    runtime.stop()
    await running
    grown = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
    writes = sum(count for (verb, kind), count in grown.items() if verb not in _READS and "leases" not in kind)
    leases = sum(count for (verb, kind), count in grown.items() if verb not in _READS and "leases" in kind)
    raw = {f"{verb} {kind}": count for (verb, kind), count in grown.items()}
    return [
        at_most(f"writes in {seconds:g} idle seconds, leases left out", writes, "", 0, **raw),
        at_most(f"lease renewals in {seconds:g} idle seconds", leases, "", 20),
    ]


def _requests(metrics: Metrics) -> Counter[tuple[str, str]]:
    """Requests by verb and kind, whatever the answers were."""
    counted: Counter[tuple[str, str]] = Counter()
    for metric in metrics.registry.collect():
        for sample in metric.samples:
            if sample.name == "kube_api_requests_total":
                counted[sample.labels["verb"], sample.labels["resource"]] += round(sample.value)
    return counted
