"""What benchmarks of a fleet stand on: a cluster of its own with our CRDs in it, and a client with many hands."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries

API_SERVER = (Component.ETCD, Component.APISERVER)
WORKERS = 32
"""Requests at a time, about as many as the API server likes."""

_NO_FLAGS: Mapping[Component, tuple[str, ...]] = {}


@asynccontextmanager
async def cluster_of(
    components: Sequence[Component], flags: Mapping[Component, tuple[str, ...]] = _NO_FLAGS
) -> AsyncIterator[tuple[Cluster, Client]]:
    """A cluster that holds nothing but our CRDs, and goes with the block."""
    with TemporaryDirectory(prefix="bench-") as folder:
        settings = Settings(components=tuple(components), flags=dict(flags))
        cluster = Cluster(Path(folder), ensure_binaries(components), settings)
        await asyncio.to_thread(cluster.start)
        try:
            async with Client(load_config(cluster.kubeconfig)) as client:
                await install(client)
                yield cluster, client
        finally:
            await asyncio.to_thread(cluster.stop)


async def each[T](items: Iterable[T], work: Callable[[T], Awaitable[object]]) -> None:
    """Do something for each item, many at a time; one failure ends it all."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(WORKERS):
            group.create_task(worker())
