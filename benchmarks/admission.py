"""What the admission policies add to the creation of a pod, with and without a card, by the number of pools.

Pods are created in dry runs, one after the other, in turns at an API server with the policies and at one without.
"""

import asyncio
import http.client
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import msgspec

from benchmarks.clusters import API_SERVER, cluster_of
from benchmarks.quantiles import quantile
from benchmarks.report import Measurement, at_most, progress
from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.api import GPUPool
from gpu_control_plane.installation import policies
from gpu_control_plane.kube import Client, Object, Resource
from gpu_control_plane.local import Cluster
from gpu_control_plane.pools.access import IndexConfigMap
from gpu_control_plane.rules.access_index import INDEX_NAME, access_index

POOLS: Final = (0, 1, 50, 500)
WITHOUT_CARD_MS, WITH_CARD_MS = 2.0, 10.0
"""What may be added at the largest number of pools."""

_TEAM: Final = "team"
_PODS: Final = f"/api/v1/namespaces/{_TEAM}/pods?dryRun=All"


class _ServiceAccount(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ServiceAccount", "serviceaccounts")


class _Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


async def measure(creations: int) -> list[Measurement]:
    async with cluster_of(API_SERVER) as (guarded, client), cluster_of(API_SERVER) as (bare, other):
        for each in (client, other):
            await each.create(_Namespace, {"metadata": {"name": _TEAM, "labels": {"team": "ml"}}})
            await each.create(_ServiceAccount, {"metadata": {"name": "default"}}, _TEAM)
        await policies.install(client, NAMESPACE)
        plain = _pod({})
        found: list[Measurement] = []
        with _connected(guarded) as judged, _connected(bare) as free:
            for pools in POOLS:
                progress(f"{pools} pools")
                await _write_index(client, pools)
                asking = _pod({_resource(max(pools, 1) - 1): "1"})
                await _until(judged, asking, 201 if pools else 403)
                without, with_card = _times(judged, free, (plain, asking), creations)
                found.append(_added("without", pools, without, WITHOUT_CARD_MS))
                if pools:
                    found.append(_added("with", pools, with_card, WITH_CARD_MS))
    return sorted(found, key=lambda each: "without" not in each.name)


class _Times(msgspec.Struct):
    """Seconds of each creation, where pods are judged and where they are not."""

    judged: list[float] = msgspec.field(default_factory=list)
    free: list[float] = msgspec.field(default_factory=list)


def _added(card: str, pools: int, times: _Times, limit: float) -> Measurement:
    """How much longer it takes with the policies, in the middle."""
    judged, free = quantile(times.judged, 0.5), quantile(times.free, 0.5)
    return at_most(
        f"added to a pod {card} a card, {pools} pools (x{judged / free:.2f})",
        (judged - free) * 1000,
        "ms",
        limit,
        ratio=judged / free,
        p50_ms=judged * 1000,
        p50_without_policies_ms=free * 1000,
        p99_ms=quantile(times.judged, 0.99) * 1000,
        p99_without_policies_ms=quantile(times.free, 0.99) * 1000,
    )


def _pool(number: int) -> GPUPool:
    access = {
        "namespaces": [_TEAM, *(f"team-{number}-{other}" for other in range(5))],
        "namespaceSelector": {"matchLabels": {"team": f"t{number}"}},
        "users": [f"user-{number}-{other}" for other in range(5)],
    }
    return msgspec.convert({"metadata": {"name": f"pool-{number}"}, "spec": {"access": access}}, GPUPool)


def _resource(number: int) -> str:
    return f"gpu.deckhouse.io/pool-{number}"


async def _write_index(client: Client, pools: int) -> None:
    data = access_index(map(_pool, range(pools))).data
    await client.patch(IndexConfigMap, INDEX_NAME, {"data": data}, namespace=NAMESPACE)


def _pod(limits: dict[str, str]) -> bytes:
    """Two containers and what pods usually have."""
    containers: list[dict[str, Any]] = [
        {
            "name": name,
            "image": "registry.example/train:1",
            "env": [{"name": f"VARIABLE_{number}", "value": "x"} for number in range(10)],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi", **given}},
        }
        for name, given in (("main", limits), ("proxy", {}))
    ]
    return msgspec.json.encode({"metadata": {"name": "asking"}, "spec": {"containers": containers}})


def _times(
    judged: http.client.HTTPSConnection, free: http.client.HTTPSConnection, pods: Sequence[bytes], creations: int
) -> list[_Times]:
    """For each pod the seconds of each creation, in turns, so that all of them meet the same machine."""
    times = [_Times() for _ in pods]
    for _ in range(creations):
        for body, found in zip(pods, times, strict=True):
            found.judged.append(_seconds(judged, body))
            found.free.append(_seconds(free, body))
    return times


def _seconds(connection: http.client.HTTPSConnection, body: bytes) -> float:
    began = time.perf_counter()
    _create(connection, body)
    return time.perf_counter() - began


def _create(connection: http.client.HTTPSConnection, body: bytes) -> int:
    connection.request("POST", _PODS, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    return response.status


async def _until(connection: http.client.HTTPSConnection, body: bytes, status: int) -> None:
    """The API server takes a moment to go by what was written."""
    async with asyncio.timeout(30):
        while _create(connection, body) != status:
            await asyncio.sleep(0.05)


@contextmanager
def _connected(cluster: Cluster) -> Iterator[http.client.HTTPSConnection]:
    context = ssl.create_default_context(cafile=str(cluster.authority))
    context.load_cert_chain(str(cluster.admin.certificate), str(cluster.admin.key))
    connection = http.client.HTTPSConnection("127.0.0.1", cluster.plan.ports.apiserver, context=context)
    try:
        yield connection
    finally:
        connection.close()
