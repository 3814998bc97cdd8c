"""`make bench`: the runtime against the API server's own limits, as ratios measured in one run."""

import argparse
import asyncio
import sys

from benchmarks import idle, pooling, sync, writes
from benchmarks.fleet import cluster_with
from benchmarks.report import publish


async def main(nodes: int, writes_of: int, idle_seconds: float, pooled: int) -> bool:
    flow = await pooling.measure(pooled)
    publish("pooling", flow)
    async with cluster_with(nodes) as cluster:
        found = await sync.measure(cluster.kubeconfig)
        found += await writes.measure(cluster.kubeconfig, writes_of)
        found += await idle.measure(cluster.kubeconfig, idle_seconds)
    publish("runtime", found)
    return all(measurement.met for measurement in (*flow, *found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000, help="nodes of eight cards each (default: 5000)")
    parser.add_argument("--writes", type=int, default=5000, help="objects the controller changes (default: 5000)")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds to watch an idle process (default: 60)")
    parser.add_argument("--pooled", type=int, default=500, help="nodes of eight cards to pool (default: 500)")
    chosen = parser.parse_args()
    sys.exit(0 if asyncio.run(main(chosen.nodes, chosen.writes, chosen.idle, chosen.pooled)) else 1)
