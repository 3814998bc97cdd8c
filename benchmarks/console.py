"""The console with a hundred people looking: what it holds in memory, what a page costs, how soon a change is seen."""

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import aiohttp
import msgspec

from benchmarks.fleet import CARDS_PER_NODE, cluster_with
from benchmarks.processes import Process, running
from benchmarks.quantiles import quantile
from benchmarks.report import Measurement, at_most, progress
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.kube import Client, Object, Resource, load_config
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.local.ports import free_port

_MEGABYTE = 1 << 20
_CHANGES_PER_SECOND = 10
_SECONDS = 40
_PAUSE_SECONDS = 2


class _ServiceAccount(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ServiceAccount", "serviceaccounts")


class _ClusterRoleBinding(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(
        "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
    )


class _Status(msgspec.Struct, frozen=True):
    token: str = ""


class _Token(msgspec.Struct, frozen=True):
    status: _Status


async def measure(nodes: int, people: int) -> list[Measurement]:
    async with cluster_with(nodes) as cluster, Client(load_config(cluster.kubeconfig)) as client:
        tokens = [await _person(client) for _ in range(people)]
        port = free_port()
        async with running(cluster, "gpu_control_plane.console", "--port", str(port)) as console:
            url = f"http://127.0.0.1:{port}"
            await _until_answers(url, tokens[0])
            alone = await console.usage()
            async with AsyncExitStack() as stack:
                sessions = [await stack.enter_async_context(_session(url, token)) for token in tokens]
                pages = {path: await _timed(sessions, path) for path in ("/", "/cards", "/api/v1/overview")}
                progress(f"{people} people open the overview")
                streams = [
                    await stack.enter_async_context(
                        session.get("/stream", params={"page": "/"}, headers={"Accept": "text/event-stream"})
                    )
                    for session in sessions
                ]
                await asyncio.gather(*(stream.content.readuntil(b"\n\n") for stream in streams))
                quiet = await _cpu(console, _SECONDS, None)
                busy, seen = await _changing(console, client, streams)
                crowd = await console.usage()
    cards = nodes * CARDS_PER_NODE
    about: dict[str, Any] = {"cards": cards, "people": people}
    return [
        at_most("console: memory alone", alone.resident / _MEGABYTE, "MB", 600, **about),
        at_most(f"console: memory with {people} people", crowd.peak / _MEGABYTE, "MB", 900, **about),
        *(
            at_most(f"console: {path}, {people} at once, slowest of a hundred", times[1] * 1000, "ms", 10_000, **about)
            for path, times in pages.items()
        ),
        *(
            at_most(f"console: {path}, one after the other", times[0] * 1000, "ms", 500, **about)
            for path, times in pages.items()
        ),
        at_most(f"console: processor, {people} look and nothing changes", quiet * 100, "%", 5, **about),
        at_most(
            f"console: processor, {people} look and {_CHANGES_PER_SECOND} cards change a second",
            busy * 100,
            "%",
            60,
            **about,
        ),
        at_most("console: a change is seen, in the middle", quantile(seen, 0.5), "s", 1, **about),
        at_most("console: a change is seen, nineteen of twenty", quantile(seen, 0.95), "s", 3, **about),
    ]


def _session(url: str, token: str) -> aiohttp.ClientSession:
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/html"}
    timeout = aiohttp.ClientTimeout(total=None, sock_read=120)
    return aiohttp.ClientSession(url, headers=headers, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())


async def _timed(sessions: list[aiohttp.ClientSession], path: str) -> tuple[float, float]:
    """In the middle when asked one after the other, and the slowest when all ask at once."""

    async def once(session: aiohttp.ClientSession) -> float:
        begun = time.perf_counter()
        async with session.get(path) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        return time.perf_counter() - begun

    alone = [await once(session) for session in sessions[:20]]
    together = await asyncio.gather(*(once(session) for session in sessions))
    return quantile(alone, 0.5), max(together)


async def _changing(
    console: Process, client: Client, streams: list[aiohttp.ClientResponse]
) -> tuple[float, list[float]]:
    """The share of a processor while cards change, and how long until one of the people sees a change."""
    cards = [card.name async for page in client.pages(GPUDevice, limit=200) for card in page.items][:200]
    seen: list[float] = []
    arrived = asyncio.Event()
    reading = [asyncio.create_task(_drain(stream)) for stream in streams[1:]]
    reading.append(asyncio.create_task(_drain(streams[0], arrived.set)))

    async def change() -> None:
        for number in range(_SECONDS // _PAUSE_SECONDS):
            state = "Faulted" if number % 2 == 0 else "Assigned"
            arrived.clear()
            begun = time.perf_counter()
            for index in range(_CHANGES_PER_SECOND * _PAUSE_SECONDS):
                name = cards[(number // 2 * _CHANGES_PER_SECOND + index) % len(cards)]
                await client.patch(GPUDevice, name, {"status": {"state": state}}, subresource="status")
            async with asyncio.timeout(30):
                await arrived.wait()
            seen.append(time.perf_counter() - begun)
            # Long enough that what follows is of the next change.
            await asyncio.sleep(max(0.0, _PAUSE_SECONDS - (time.perf_counter() - begun)))

    busy = await _cpu(console, None, change())
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    return busy, seen


async def _drain(stream: aiohttp.ClientResponse, arrived: Callable[[], None] = lambda: None) -> None:
    async for content in stream.content.iter_any():
        if not content.startswith(b":"):
            arrived()


async def _cpu(console: Process, seconds: float | None, work: Any) -> float:
    before, begun = await console.usage(), time.perf_counter()
    await (asyncio.sleep(seconds or 0) if work is None else work)
    after = await console.usage()
    return (after.cpu_seconds - before.cpu_seconds) / (time.perf_counter() - begun)


async def _person(client: Client) -> str:
    name = f"person-{secrets.token_hex(4)}"
    await client.create(_ServiceAccount, {"metadata": {"name": name}}, "default")
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    await client.create(_ClusterRoleBinding, binding)
    call = Call(
        method="POST",
        path=f"/api/v1/namespaces/default/serviceaccounts/{name}/token",
        verb="create",
        resource="serviceaccounts",
        body=msgspec.json.encode({"spec": {"expirationSeconds": 3600}}),
    )
    return msgspec.json.decode(await client.transport.send(call), type=_Token).status.token


async def _until_answers(url: str, token: str) -> None:
    async with asyncio.timeout(120), _session(url, token) as session:
        while True:
            try:
                async with session.get("/") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)
