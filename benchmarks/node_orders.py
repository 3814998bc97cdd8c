"""From a changed order until the kubelet has it: the agent's own part, and the whole as seen from outside."""

import asyncio
import os
import random
import time
from collections.abc import Sequence
from itertools import pairwise

from prometheus_client.samples import Sample

from benchmarks.node_env import CARDS, NodeEnv
from benchmarks.quantiles import quantile
from benchmarks.report import Measurement, at_most, progress
from gpu_control_plane.api import GPUNodeState

_LONGEST_PAUSE_SECONDS = 0.4
"""Changes come at any moment of the agent's own intervals."""
_HISTOGRAM = "gpu_agent_order_seconds"
_WRITES = "kube_api_request_seconds"


async def measure(env: NodeEnv, changes: int) -> list[Measurement]:
    """Cards leave and join a resource one at a time, alternately."""
    rng = random.Random(0)
    progress(f"{changes} changed orders")
    everything = set(range(CARDS))
    before = await env.agent.samples()
    outside = []
    for number in range(changes):
        cards = everything if number % 2 else everything - {number // 2 % CARDS}
        await asyncio.sleep(rng.uniform(0, _LONGEST_PAUSE_SECONDS))
        await env.order(sorted(cards))
        patched = time.perf_counter()
        await env.kubelet_offers(cards)
        outside.append(time.perf_counter() - patched)
    after = await env.agent.samples()
    counted = _grown(before, after, _HISTOGRAM)
    writes = _grown(before, after, _WRITES, resource=GPUNodeState.resource.qualified_name)
    p50, p99 = (_from_buckets(counted, share) * 1000 for share in (0.5, 0.99))
    raw = {
        "agent p50 ms": p50,
        "of it the write of its answer, p50 ms": _from_buckets(writes, 0.5) * 1000,
        "of it the write of its answer, p99 ms": _from_buckets(writes, 0.99) * 1000,
        "writes": writes[float("inf")],
        "orders seen by the agent": counted[float("inf")],
        "orders by seconds at most": {f"{limit:g}": count for limit, count in counted.items()},
        "outside p50 ms": quantile(outside, 0.5) * 1000,
        "outside p99 ms": quantile(outside, 0.99) * 1000,
        "load of the machine": os.getloadavg()[0],
        "outside": "from the patch's answer until the kubelet's pod-resources API agrees, asked every 25 ms",
    }
    return [at_most(f"{changes} changed orders, agent's time until the kubelet was told, p99", p99, "ms", 100, **raw)]


def _grown(before: Sequence[Sample], after: Sequence[Sample], histogram: str, **labels: str) -> dict[float, float]:
    """What was counted between two scrapes, by the upper edge of the bucket."""
    counts = [
        {
            float(sample.labels["le"]): sample.value
            for sample in samples
            if sample.name == f"{histogram}_bucket" and labels.items() <= sample.labels.items()
        }
        for samples in (before, after)
    ]
    return {edge: count - counts[0].get(edge, 0) for edge, count in counts[1].items()}


def _from_buckets(counted: dict[float, float], share: float) -> float:
    """As Prometheus' `histogram_quantile` has it: evenly spread inside a bucket."""
    wanted = counted[float("inf")] * share
    edges = [(0.0, 0.0), *sorted(counted.items())]
    for (low, below), (high, count) in pairwise(edges):
        if count >= wanted:
            return low + (high - low) * (wanted - below) / (count - below) if high < float("inf") else low
    return float("nan")
