"""Clusters for benchmarks, each of its own and with our CRDs in it, and a client that sends many requests at a time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.versions import NODE_PROGRAMS

API_SERVER = (Component.ETCD, Component.APISERVER)
WORKERS = 32
"""Requests at a time; more do not make the API server faster."""


@asynccontextmanager
async def cluster_of(
    components: Sequence[Component],
    flags: dict[Component, tuple[str, ...]] | None = None,
    *,
    nodes: tuple[str, ...] = (),
) -> AsyncIterator[tuple[Cluster, Client]]:
    """A cluster that holds nothing but our CRDs, with these real nodes; it is removed at the end of the block."""
    with TemporaryDirectory(prefix="gpu-") as folder:  # short: the kubelet's sockets are in it
        settings = Settings(components=tuple(components), flags=flags or {}, nodes=nodes)
        binaries = ensure_binaries([*components, *(NODE_PROGRAMS if nodes else ())])
        cluster = Cluster(Path(folder), binaries, settings)
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
