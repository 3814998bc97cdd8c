"""Many RayClusters at once, each a head and two workers, against a bare client that writes the same objects.

The bare client creates the very same Services and pods and writes the first and the last status, as fast as the API
server takes them, and waits for the same pods. The controller runs as a process of its own, with its defaults. In both
runs one more client plays kubelet: a pod runs as soon as it is seen. Events are not counted, and take their time.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar

from benchmarks.clusters import API_SERVER, cluster_of, each
from benchmarks.processes import Process, running
from benchmarks.report import Measurement, at_most, progress
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.kube import Client, Key, Object, Resource, Runtime, Selection
from gpu_control_plane.ray.cluster.caches import owning_cluster
from gpu_control_plane.ray.cluster.children import desired_children
from gpu_control_plane.ray.cluster.manifests import ClusterContext, ReplicaIdentity, head_pod, worker_pod
from gpu_control_plane.ray.cluster.status import StatusSnapshot, cluster_status
from gpu_control_plane.ray.owned import OF_CLUSTERS, OwnedService, RayPod
from gpu_control_plane.ray.status_patch import write_status

NAMESPACE = "rays"
WORKERS = 2

_OTHERS = ("inventory", "bootstrap", "pools", "operator")
_TENTH = 10
_QUIET_SECONDS = 5


class Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


class ServiceAccount(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ServiceAccount", "serviceaccounts")


async def measure(clusters: int) -> list[Measurement]:
    async with _server() as (_, client, life):
        bare = await _bare(client, life, clusters)
    async with _server() as (cluster, client, life):
        arguments = [word for other in _OTHERS for word in ("--without", other)]
        async with running(
            cluster, "gpu_control_plane.controller", *arguments, "--status-host", "127.0.0.1"
        ) as process:
            return await _operated(client, process, life, clusters, bare)


async def _operated(client: Client, process: Process, life: "_Life", clusters: int, bare: float) -> list[Measurement]:
    few = max(1, clusters // _TENTH)
    before = await process.usage()
    progress(f"{few:,} RayClusters")
    await _come_up(client, life, range(few))
    between = await process.usage()
    progress(f"{clusters:,} more")
    seconds = await _come_up(client, life, range(few, few + clusters))
    after = await process.usage()
    await asyncio.sleep(_QUIET_SECONDS)
    later = await process.usage()
    first, rest = (between.writes - before.writes) / few, (after.writes - between.writes) / clusters
    return [
        at_most(
            f"{clusters:,} RayClusters with {WORKERS} workers each, against a bare client that writes the same",
            seconds / bare,
            "x",
            1.3,
            **{"seconds": seconds, "bare seconds": bare, "CPU seconds": after.cpu_seconds - between.cpu_seconds},
        ),
        at_most("writes a cluster: a Service, three pods and its status", rest, "", 4 + 4, **{"of the first": first}),
        at_most("requests a cluster", (after.requests - between.requests) / clusters, "", 4 + 5),
        at_most(f"writes a cluster, against those of {few:,} clusters", rest / first, "x", 1.2),
        at_most("writes when all are ready", later.writes - after.writes, "", 0),
        at_most("controller, resident", after.resident / 2**20, "MiB", 300),
    ]


async def _come_up(client: Client, life: "_Life", numbers: range) -> float:
    """Create clusters, and the seconds until all are ready."""
    start = time.perf_counter()
    await each(numbers, lambda number: client.create(RayCluster, _cluster(number), NAMESPACE))
    await asyncio.gather(*(life.ready[f"rc-{number}"].wait() for number in numbers))
    return time.perf_counter() - start


async def _bare(client: Client, life: "_Life", clusters: int) -> float:
    """The seconds that the same objects take a client that decides nothing."""
    progress(f"the objects of {clusters:,} RayClusters from a bare client")
    start = time.perf_counter()
    ending: list[asyncio.Task[None]] = []

    async def one(number: int) -> None:
        cluster = await client.create(RayCluster, _cluster(number), NAMESPACE)
        context = ClusterContext(cluster=cluster)
        group = cluster.spec.worker_group_specs[0]
        for child in desired_children(context, None, b""):
            await client.create(child.kind, child.manifest, NAMESPACE)
        pods = [head_pod(context), *(worker_pod(context, group, ReplicaIdentity(n)) for n in range(WORKERS))]
        await asyncio.gather(*(client.create(RayPod, pod, NAMESPACE) for pod in pods))
        ending.append(asyncio.create_task(end(await _write_status(client, life, cluster))))

    async def end(cluster: RayCluster) -> None:
        await life.up[cluster.name].wait()
        await _write_status(client, life, cluster)

    await each(range(clusters), one)
    await asyncio.gather(*ending)
    return time.perf_counter() - start


async def _write_status(client: Client, life: "_Life", cluster: RayCluster) -> RayCluster:
    pods = tuple(life.pods_of(cluster.key))
    service = OwnedService(spec={"clusterIP": "None", "ports": []})
    snapshot = StatusSnapshot(cluster=cluster, pods=pods, head_service=service, now=datetime.now(UTC))
    return await write_status(client, cluster, cluster_status(snapshot))


def _cluster(number: int) -> dict[str, Any]:
    container = {
        "name": "ray",
        "image": "rayproject/ray:2.52.0",
        "resources": {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "500m", "memory": "2Gi"}},
    }
    template = {"spec": {"containers": [container]}}
    workers = {
        "groupName": "workers", "replicas": WORKERS, "minReplicas": WORKERS, "maxReplicas": WORKERS,
        "template": template,
    }  # fmt: skip
    spec = {"rayVersion": "2.52.0", "headGroupSpec": {"template": template}, "workerGroupSpecs": [workers]}
    return {"metadata": {"name": f"rc-{number}"}, "spec": spec}


class _Life:
    """Lets every pod run, and sees which clusters are ready."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.ready: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """Set when the status of a cluster says that it is ready."""
        self.up: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """Set when all pods of a cluster run."""
        self.runtime = Runtime("bench-life", config=client.config, elect=False, status_port=None)
        self._pods = self.runtime.cache(RayPod, Selection(namespace=NAMESPACE, labels=OF_CLUSTERS.labels))
        self._pods.index("cluster", lambda pod: [str(key) for key in owning_cluster(pod)])
        self._clusters = self.runtime.cache(RayCluster, Selection(namespace=NAMESPACE))
        self.runtime.controller("pods", self._run, workers=16).watch(self._pods)
        self.runtime.controller("clusters", self._see, workers=1).watch(self._clusters)

    def pods_of(self, cluster: Key) -> list[RayPod]:
        return self._pods.by_index("cluster", str(cluster))

    async def _run(self, key: Key) -> None:
        pod = self._pods.at(key)
        if pod is None:
            return
        if pod.running:
            for cluster in owning_cluster(pod):
                if sum(each.running for each in self.pods_of(cluster)) == 1 + WORKERS:
                    self.up[cluster.name].set()
            return
        conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
        body = {"status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": conditions}}
        await self._client.patch(RayPod, key.name, body, namespace=NAMESPACE, subresource="status")

    async def _see(self, key: Key) -> None:
        cluster = self._clusters.at(key)
        if cluster is not None and cluster.status.ready_worker_replicas == WORKERS and cluster.status.state == "ready":
            self.ready[key.name].set()


@asynccontextmanager
async def _server() -> AsyncIterator[tuple[Any, Client, _Life]]:
    async with cluster_of(API_SERVER) as (cluster, client):
        await client.create(Namespace, {"metadata": {"name": NAMESPACE}})
        await client.create(ServiceAccount, {"metadata": {"name": "default"}}, NAMESPACE)
        life = _Life(client)
        task = asyncio.create_task(life.runtime.run())
        try:
            yield cluster, client, life
        finally:
            life.runtime.stop()
            await task
