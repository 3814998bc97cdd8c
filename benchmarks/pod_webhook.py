"""What the pod webhook adds to the creation of a pod, at half the rate that the API server reaches without it.

Pods are created in dry runs, at fixed moments whether earlier ones have been answered or not, as users do: a slow
answer does not make the next pod wait. Rounds with and without the webhook take turns, so that both meet the same
machine.
"""

import asyncio
import os
import time
from contextlib import suppress
from typing import Any, ClassVar, Final

from benchmarks.clusters import API_SERVER, cluster_of
from benchmarks.processes import running
from benchmarks.quantiles import quantile
from benchmarks.report import Measurement, at_most, progress
from gpu_control_plane.api import GPUPool
from gpu_control_plane.api.names import Label
from gpu_control_plane.installation.webhooks import install
from gpu_control_plane.kube import Client, Object, Resource
from gpu_control_plane.kube.ca_bundle import MutatingWebhookConfiguration
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.local.ports import LOOPBACK, free_port
from gpu_control_plane.rules.webhook_configuration import NAME

P50_MS, P99_MS = 5.0, 10.0
"""What may be added in the middle, and to the slowest of a hundred."""

_TEAM: Final = "team"
_POOLS: Final = 50
_ROUNDS: Final = 8
_MIDDLE: Final = 0.5
_CONNECTIONS: Final = 16


class _Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


class _ServiceAccount(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ServiceAccount", "serviceaccounts")


class _Pod(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")


async def measure(seconds: float) -> list[Measurement]:
    """Rounds take so many seconds each."""
    async with cluster_of(API_SERVER) as (cluster, client):
        await client.create(_Namespace, {"metadata": {"name": _TEAM}})
        await client.create(_ServiceAccount, {"metadata": {"name": "default"}}, _TEAM)
        for number in range(_POOLS):
            await client.create(GPUPool, {"metadata": {"name": f"pool-{number}"}, "spec": {}})
        port = free_port()
        served = ("--webhooks", NAME, "--webhook-host", LOOPBACK, "--webhook-port", str(port))
        async with running(cluster, "gpu_control_plane.controller", *served):
            rate = await _highest_rate(client, seconds) / 2
            progress(f"{rate:.0f} pods a second, half of what the API server reaches")
            without, called = [], []
            for _ in range(_ROUNDS):
                await _switch(client, None)
                without.append(await _round(client, rate, seconds))
                await _switch(client, port)
                called.append(await _round(client, rate, seconds))
    return [_added(share, without, called, rate) for share in (_MIDDLE, 0.99)]


def _added(share: float, without: list[list[float]], called: list[list[float]], rate: float) -> Measurement:
    """The best rounds are compared: what else happens on this machine can only make a round worse."""
    bare, with_it = ([quantile(taken, share) * 1000 for taken in rounds] for rounds in (without, called))
    return at_most(
        f"added by the webhook to the creation of a pod, {rate:.0f} a second, p{100 * share:g}",
        min(with_it) - min(bare),
        "ms",
        P99_MS if share > _MIDDLE else P50_MS,
        without_ms=bare,
        with_ms=with_it,
        pods_a_second=rate,
        load_of_the_machine=os.getloadavg()[0],
    )


async def _highest_rate(client: Client, seconds: float) -> float:
    """Pods a second that the API server takes without the webhook."""
    end = time.perf_counter() + seconds
    count = 0

    async def worker() -> None:
        nonlocal count
        while time.perf_counter() < end:
            await client.try_create(_Pod, _pod(), _TEAM)
            count += 1

    await asyncio.gather(*(worker() for _ in range(_CONNECTIONS)))
    return count / seconds


async def _round(client: Client, rate: float, seconds: float) -> list[float]:
    """Seconds that each creation took, from the moment when it was due."""
    taken: list[float] = []
    begin = time.perf_counter()

    async def create(due: float) -> None:
        await asyncio.sleep(due - time.perf_counter())
        await client.try_create(_Pod, _pod(), _TEAM)
        taken.append(time.perf_counter() - due)

    await asyncio.gather(*(create(begin + number / rate) for number in range(int(rate * seconds))))
    return taken


async def _switch(client: Client, port: int | None) -> None:
    """Have the webhook called at this port, or not at all, and return when the API server goes by it."""
    if port is not None:
        await install(client, f"https://{LOOPBACK}:{port}")
    else:
        with suppress(NotFound):
            await client.delete(MutatingWebhookConfiguration, NAME)
    async with asyncio.timeout(60):
        while (Label.POOL in (await _created(client)).metadata.labels) is not (port is not None):
            await asyncio.sleep(0.05)


async def _created(client: Client) -> _Pod:
    made = await client.create(_Pod, _pod(), _TEAM)
    await client.delete(_Pod, made.name, _TEAM)
    return made


def _pod() -> dict[str, Any]:
    """Two containers and what pods usually have; one asks for a card."""
    limits = {"cpu": "1", "memory": "1Gi"}
    environ = [{"name": f"VARIABLE_{number}", "value": "x"} for number in range(10)]
    containers = [
        {
            "name": name,
            "image": "example.com/train:1",
            "env": environ,
            "resources": {"limits": {**limits, **given}},
        }
        for name, given in (("main", {"gpu.deckhouse.io/pool-7": "1"}), ("proxy", {}))
    ]
    spec = {"containers": containers, "terminationGracePeriodSeconds": 0}
    return {"metadata": {"generateName": "train-"}, "spec": spec}
