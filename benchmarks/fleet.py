"""A fleet of GPUDevices in a real API server, made quickly.

The cards of the first node are made through the API, as controllers would make them; those of the other nodes are
copies of what the server then stored, put into etcd under their own names. Readers cannot tell the difference.
"""

import asyncio
import base64
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from benchmarks.clusters import API_SERVER, cluster_of
from benchmarks.report import progress
from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.examples import device, manifest
from gpu_control_plane.kube import Cache, Client, FieldManager, Selection
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.local import Cluster, Component

CARDS_PER_NODE = 8
_PREFIX = f"/registry/{GPUDevice.resource.group}/{GPUDevice.resource.plural}/"
_FIRST = "node-0000"


class _Pair(msgspec.Struct):
    """A key and its value, as etcd's JSON gateway writes them: in Base64."""

    key: str
    value: str


class _Range(msgspec.Struct):
    kvs: list[_Pair] = []


@asynccontextmanager
async def cluster_with(nodes: int) -> AsyncIterator[Cluster]:
    """A cluster of its own that holds `nodes` times eight GPUDevices and nothing else of ours."""
    async with cluster_of(API_SERVER) as (cluster, client):
        for index in range(CARDS_PER_NODE):
            await _make(client, index)
        # So much at once reaches a running API server slowly, through its own watch; a starting one lists it.
        await asyncio.to_thread(cluster.stop_component, Component.APISERVER)
        await _multiply(cluster, nodes)
        await asyncio.to_thread(cluster.start_component, Component.APISERVER)
        await _serving(client)
        yield cluster


async def _make(client: Client, index: int) -> None:
    """One device as two controllers and an agent would leave it behind."""
    example = manifest(device(node=_FIRST, index=index))
    name, spec, status = example["metadata"]["name"], {"spec": example["spec"]}, example["status"]
    await client.apply(GPUDevice, name, spec, manager=FieldManager("inventory"))
    for manager, fields in (
        ("inventory", ("hardware",)),
        ("pools", ("state", "poolRef", "history")),
        ("agent", ("usedBy", "telemetry", "conditions")),
    ):
        share = {"status": {field: status[field] for field in fields if field in status}}
        await client.apply(GPUDevice, name, share, manager=FieldManager(manager), subresource="status")


async def _serving(client: Client) -> None:
    """Wait until the API server has read everything; until then it answers 429."""
    nothing = Selection(fields="metadata.name=none")
    cache = Cache(GPUDevice, ApiSource(client, GPUDevice, nothing), metrics=client.metrics)
    watching = asyncio.create_task(cache.run())
    await cache.synced()
    watching.cancel()


async def _multiply(cluster: Cluster, nodes: int) -> None:
    """Copy the first node's cards to all other nodes, one transaction a node."""
    context = ssl.create_default_context(cafile=str(cluster.authority))
    serving = cluster.plan.identities.serving
    context.load_cert_chain(serving.certificate, serving.key)
    etcd = f"https://127.0.0.1:{cluster.plan.ports.etcd}"
    async with aiohttp.ClientSession(etcd, connector=aiohttp.TCPConnector(ssl=context)) as session:
        everything = {"key": _base64(_PREFIX), "range_end": _base64(_PREFIX[:-1] + "0")}
        async with session.post("/v3/kv/range", json=everything, raise_for_status=True) as answer:
            stored = msgspec.json.decode(await answer.read(), type=_Range).kvs
        size = sum(len(base64.b64decode(pair.value)) for pair in stored) // len(stored)
        progress(f"putting {nodes * len(stored):,} GPUDevices of {size:,} bytes into etcd")
        for number in range(1, nodes):
            puts = [{"request_put": _copy(pair, f"node-{number:04}")} for pair in stored]
            async with session.post("/v3/kv/txn", json={"success": puts}, raise_for_status=True) as answer:
                await answer.read()


def _copy(pair: _Pair, node: str) -> dict[str, str]:
    key = base64.b64decode(pair.key).decode().replace(_FIRST, node)
    value = base64.b64decode(pair.value).decode().replace(_FIRST, node)
    before, _, after = value.partition('"uid":"')
    value = f'{before}"uid":"{uuid.uuid4()}{after[36:]}'
    return {"key": _base64(key), "value": _base64(value)}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
