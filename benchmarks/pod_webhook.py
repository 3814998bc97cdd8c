"""What the pod webhook adds to the creation of a pod, at half the rate that the API server reaches without it.

Pods are created in dry runs, at fixed moments whether earlier ones have been answered or not, as users do: a slow
answer does not make the next pod wait. Rounds without a webhook, with a bare one that only answers, and with ours take
turns, so that all meet the same machine. The bare one shows what no webhook can save: the API server's own work for the
call, on the cores that it shares with the caller, etcd and the webhook.
"""

import asyncio
import os
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
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
from gpu_control_plane.kube.certificates import issue, new_authority
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.local.ports import LOOPBACK, free_port
from gpu_control_plane.rules.webhook_configuration import NAME, webhook_configurations

P50_MS, P99_MS = 5.0, 10.0
"""What may be added in the middle, and to the slowest of a hundred."""
AGAINST_BARE, CPU_MS = 1.5, 1.0

_TEAM: Final = "team"
_POOLS: Final = 50
_ASKED: Final = "pool-7"
_ROUNDS: Final = 6
_MIDDLE: Final = 0.5
_CONNECTIONS: Final = 16
_BARE: Final = "bare-webhook"


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
        async with running(cluster, "gpu_control_plane.controller", *served) as controller, _bare_webhook() as bare:
            rate = await _highest_rate(client, seconds) / 2
            progress(f"{rate:.0f} pods a second, half of what the API server reaches")
            rounds: dict[str, list[list[float]]] = {"none": [], "bare": [], "ours": []}
            used = 0.0
            for _ in range(_ROUNDS):
                await _without(client)
                rounds["none"].append(await _round(client, rate, seconds))
                await _with_bare(client, *bare)
                rounds["bare"].append(await _round(client, rate, seconds))
                await _with_ours(client, port)
                before = controller.cpu_seconds()
                rounds["ours"].append(await _round(client, rate, seconds))
                used += controller.cpu_seconds() - before
    reviews = sum(map(len, rounds["ours"]))
    return [
        *(_added(share, rounds, rate) for share in (_MIDDLE, 0.99)),
        *(_against_bare(share, rounds) for share in (_MIDDLE, 0.99)),
        at_most("CPU time of the webhook for a review", 1000 * used / reviews, "ms", CPU_MS),
    ]


def _added(share: float, rounds: dict[str, list[list[float]]], rate: float) -> Measurement:
    """The best rounds are compared: what else happens on this machine can only make a round worse."""
    taken = {name: [quantile(each, share) * 1000 for each in found] for name, found in rounds.items()}
    return at_most(
        f"added by the webhook to the creation of a pod, {rate:.0f} a second, p{100 * share:g}",
        min(taken["ours"]) - min(taken["none"]),
        "ms",
        P99_MS if share > _MIDDLE else P50_MS,
        **{f"{name}_ms": found for name, found in taken.items()},
        pods_a_second=rate,
        load_of_the_machine=os.getloadavg()[0],
    )


def _against_bare(share: float, rounds: dict[str, list[list[float]]]) -> Measurement:
    best = {name: min(quantile(each, share) for each in found) for name, found in rounds.items()}
    name = f"a pod's creation with our webhook against one that only answers, p{100 * share:g}"
    return at_most(name, best["ours"] / best["bare"], "x", AGAINST_BARE)


@asynccontextmanager
async def _bare_webhook() -> AsyncIterator[tuple[int, bytes]]:
    """Its port, and the certificate to trust."""
    port, now = free_port(), utc_now()
    authority = new_authority("bare", now=now, valid_for=timedelta(days=1))
    serving = issue(authority, (LOOPBACK,), now=now, valid_for=timedelta(days=1))
    with TemporaryDirectory() as folder:
        certificate, key = Path(folder) / "certificate.pem", Path(folder) / "key.pem"
        certificate.write_bytes(serving.certificate)
        key.write_bytes(serving.key)
        arguments = ("-m", "benchmarks.bare_webhook", str(port), str(certificate), str(key), _ASKED)
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
        try:
            yield port, authority.certificate
        finally:
            process.terminate()
            await process.wait()


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


async def _without(client: Client) -> None:
    """Have no webhook called."""
    for name in (NAME, _BARE):
        with suppress(NotFound):
            await client.delete(MutatingWebhookConfiguration, name)
    await _in_force(client, labelled=False)


async def _with_ours(client: Client, port: int) -> None:
    """Have our webhook called at this port; the controller sets the certificate to trust."""
    await _without(client)
    await install(client, f"https://{LOOPBACK}:{port}")
    await _in_force(client, labelled=True)


async def _with_bare(client: Client, port: int, trusted: bytes) -> None:
    """Have the bare webhook called instead, for the same pods."""
    await _without(client)
    reached = {"url": f"https://{LOOPBACK}:{port}/", "caBundle": b64encode(trusted).decode()}
    (manifest,) = [
        each for each in webhook_configurations(lambda _path: reached) if each["kind"].startswith("Mutating")
    ]
    pods = [each for each in manifest["webhooks"] if each["name"].startswith("pods.")]
    # Under this name the controller would set its own certificate.
    await client.create(MutatingWebhookConfiguration, {**manifest, "metadata": {"name": _BARE}, "webhooks": pods})
    await _in_force(client, labelled=True)


async def _in_force(client: Client, *, labelled: bool) -> None:
    """Return when the API server goes by the configuration."""
    async with asyncio.timeout(60):
        while (Label.POOL in (await _created(client)).metadata.labels) is not labelled:
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
        for name, given in (("main", {f"gpu.deckhouse.io/{_ASKED}": "1"}), ("proxy", {}))
    ]
    spec = {"containers": containers, "terminationGracePeriodSeconds": 0}
    return {"metadata": {"generateName": "train-"}, "spec": spec}
