"""A cache shows what a real API server holds, whatever happens to the watch."""

import asyncio
import math
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest
import structlog

from fault_proxy import Fault, FaultProxy, Request
from gpu_control_plane.kube import Cache, Client, Key, Metrics, Object, Resource, Selection, load_config
from gpu_control_plane.kube.backoff import Backoff
from gpu_control_plane.kube.errors import CannotWatch, Gone, Unreachable
from gpu_control_plane.kube.recovery import Recovery
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.local import Cluster
from integration.kinds import ConfigMap, Missing, configmap
from waiting import until


@asynccontextmanager
async def running(cache: Cache[ConfigMap], *, synced: bool = True) -> AsyncIterator[None]:
    """The running cache, synced unless `synced` is False."""
    task = asyncio.create_task(cache.run())
    try:
        if synced:
            await asyncio.wait_for(cache.synced(), 60)
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


def watching(client: Client, namespace: str, *, silence: float = 130.0) -> Cache[ConfigMap]:
    source = ApiSource(client, ConfigMap, Selection(namespace), silence=silence)
    return Cache(ConfigMap, source, metrics=client.metrics)


def names(cache: Cache[ConfigMap]) -> set[str]:
    return {item.name for item in cache} - {"kube-root-ca.crt"}


def starts(metrics: Metrics, reason: str) -> float:
    labels = {"resource": "configmaps", "reason": reason}
    return metrics.registry.get_sample_value("kube_watch_starts_total", labels) or 0.0


def is_watch(request: Request) -> bool:
    return request.is_watch


async def test_a_cache_shows_what_exists_and_follows_every_change(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, configmap("old", {"team": "a"}), namespace)
    cache = watching(client, namespace)
    cache.index("team", lambda item: [item.metadata.labels.get("team", "")])
    heard: list[tuple[str | None, str | None]] = []
    cache.on_change(lambda old, new: heard.append((old.name if old else None, new.name if new else None)))
    async with running(cache):
        assert [item.name for item in cache.by_index("team", "a")] == ["old"]
        await client.patch(ConfigMap, "old", {"metadata": {"labels": {"team": "b"}}}, namespace=namespace)
        await client.create(ConfigMap, configmap("new"), namespace)
        await client.delete(ConfigMap, "new", namespace)
        await until(lambda: heard == [(None, "old"), ("old", "old"), (None, "new"), ("new", None)])
        assert cache.by_index("team", "a") == []
        assert cache.at(Key("old", namespace)) is cache.get("old", namespace)


async def test_the_list_is_streamed_where_the_server_can(client: Client, namespace: str) -> None:
    async with (
        FaultProxy.before(client.config) as proxy,
        Client(proxy.config) as counted,
        running(watching(counted, namespace)),
    ):
        assert [request.query.get("sendInitialEvents") for request in proxy.requests] == ["true"]


async def test_without_streaming_lists_the_cache_pages(own_api_server: Callable[..., Cluster]) -> None:
    cluster = await asyncio.to_thread(own_api_server, "--feature-gates=WatchList=false")
    async with (
        Client(load_config(cluster.kubeconfig)) as client,
        FaultProxy.before(client.config) as proxy,
        Client(proxy.config) as counted,
    ):
        makers = [client.create(ConfigMap, configmap(f"item-{n}"), "default") for n in range(25)]
        await asyncio.gather(*makers)
        source = ApiSource(counted, ConfigMap, Selection("default"), page_size=10)
        cache = Cache(ConfigMap, source, metrics=counted.metrics)
        async with running(cache):
            assert len(names(cache)) == 25
            assert [request.query.get("limit") for request in proxy.requests[1:4]] == ["10", "10", "10"]
            await client.create(ConfigMap, configmap("late"), "default")
            await until(lambda: cache.get("late", "default"))
            # A later list asks for pages at once instead of trying what this server has refused before.
            proxy.plant(Fault(when=is_watch, status=410, reason="Expired"))
            proxy.cut_streams()
            await client.create(ConfigMap, configmap("later"), "default")
            await until(lambda: cache.get("later", "default"))
            refused = [r for r in proxy.requests if r.query.get("sendInitialEvents")]
            assert len(refused) == 1


async def test_a_watch_cut_inside_an_event_resumes_without_listing_again(client: Client, namespace: str) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as faulty:
        cache = watching(faulty, namespace)
        async with running(cache):
            proxy.cut_inside_next_event()
            for number in range(20):
                await client.create(ConfigMap, configmap(f"item-{number}", note="x" * 100), namespace)
            await until(lambda: len(names(cache)) == 20)
            await client.delete(ConfigMap, "item-3", namespace)
            await until(lambda: len(names(cache)) == 19)
    assert len(proxy.watches) == 2
    assert "resourceVersion" in proxy.watches[1].query
    assert starts(faulty.metrics, "error") == 1


@pytest.mark.parametrize("cut_at", [1, 40, 400, 900, 2500, 6000])
async def test_a_cut_anywhere_loses_nothing(client: Client, namespace: str, cut_at: int) -> None:
    for number in range(10):
        await client.create(ConfigMap, configmap(f"item-{number}", note="x" * 100), namespace)
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as faulty:
        proxy.plant(Fault(when=is_watch, cut_after=cut_at, times=2))
        cache = watching(faulty, namespace)
        async with running(cache):
            assert len(names(cache)) == 10


async def test_an_expired_version_is_listed_again_and_what_vanished_is_reported(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, configmap("stays"), namespace)
    await client.create(ConfigMap, configmap("vanishes"), namespace)
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as faulty:
        cache = watching(faulty, namespace)
        gone: list[str] = []
        cache.on_change(lambda old, new: gone.append(old.name) if old and not new else None)
        async with running(cache):
            # The watch ends, cannot come back for a while, and then its version is too old.
            proxy.plant(Fault(when=is_watch, status=503, times=2))
            proxy.plant(Fault(when=is_watch, status=410, reason="Expired"))
            proxy.cut_streams()
            await client.delete(ConfigMap, "vanishes", namespace)
            await until(lambda: gone == ["vanishes"])
            assert names(cache) == {"stays"}
        assert starts(faulty.metrics, "expired") == 1
        assert proxy.watches[-1].query.get("sendInitialEvents") == "true"


async def test_a_watch_that_falls_silent_is_replaced(client: Client, namespace: str) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as faulty:
        proxy.plant(Fault(when=is_watch, silent_after=1500))
        cache = watching(faulty, namespace, silence=0.5)
        async with running(cache, synced=False):
            for number in range(20):
                await client.create(ConfigMap, configmap(f"item-{number}", note="x" * 100), namespace)
            await until(lambda: len(names(cache)) == 20)


async def test_a_throttled_first_watch_is_tried_again_soon(client: Client, namespace: str) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as faulty:
        proxy.plant(Fault(when=is_watch, status=429, retry_after=0, reason="TooManyRequests", times=4))
        async with asyncio.timeout(20), running(watching(faulty, namespace)):
            assert len(proxy.watches) == 5


async def test_the_api_server_may_be_gone_for_longer_than_any_pause(own_api_server: Callable[..., Cluster]) -> None:
    longest_pause = 0.8
    cluster = await asyncio.to_thread(own_api_server)
    async with Client(load_config(cluster.kubeconfig)) as client:
        await client.create(ConfigMap, configmap("before"), "default")
        source = ApiSource(client, ConfigMap, Selection("default"))
        recovery = Recovery(Backoff(first=0.1, most=longest_pause))
        cache = Cache(ConfigMap, source, metrics=client.metrics, recovery=recovery)
        async with running(cache):
            await asyncio.to_thread(cluster.stop_component, "kube-apiserver", signal.SIGKILL)
            await until(lambda: isinstance(cache.watch_error, Unreachable))
            await asyncio.sleep(4 * longest_pause)  # the outage itself, not a wait for something
            assert names(cache) == {"before"}
            await asyncio.to_thread(cluster.start_component, "kube-apiserver")
            await client.create(ConfigMap, configmap("after"), "default")
            await client.delete(ConfigMap, "before", "default")
            await until(lambda: names(cache) == {"after"})
            assert cache.watch_error is None
        # A server that has just started knows no history: what is older than its start is really gone.
        with pytest.raises(Gone):
            async with asyncio.timeout(60):
                await anext(ApiSource(client, ConfigMap, Selection("default")).changes("1"))


async def test_after_etcd_was_restored_a_cache_equals_the_server(own_api_server: Callable[..., Cluster]) -> None:
    cluster = await asyncio.to_thread(own_api_server)
    data, backup = cluster.folder / "etcd", cluster.folder / "backup"

    async with Client(load_config(cluster.kubeconfig)) as client:
        for name in ("unchanged", "changed", "deleted"):
            await client.create(ConfigMap, configmap(name, value="backed up"), "default")
        await asyncio.to_thread(_with_etcd_stopped, cluster, lambda: shutil.copytree(data, backup))
        cache = watching(client, "default")
        async with running(cache):
            # What happens after the backup, and is lost with it; the last of it leaves a version far ahead.
            await client.create(ConfigMap, configmap("created"), "default")
            await client.delete(ConfigMap, "deleted", "default")
            for number in range(50):
                await client.patch(ConfigMap, "changed", {"data": {"value": str(number)}}, namespace="default")
            latest = await client.get(ConfigMap, "changed", "default")
            await until(lambda: cache.get("changed", "default") == latest)

            await asyncio.to_thread(_with_etcd_stopped, cluster, lambda: _replace(data, backup))
            await client.create(ConfigMap, configmap("created", value="in another life"), "default")
            held = {item.name: item for item in await client.list(ConfigMap, Selection("default"))}
            assert int(held["changed"].metadata.resource_version) < int(latest.metadata.resource_version)
            await until(lambda: {item.name: item for item in cache} == held, within=30)
            # And it follows from there, though the versions are lower than those it has seen.
            await client.delete(ConfigMap, "unchanged", "default")
            await until(lambda: names(cache) == {"changed", "created", "deleted"})


def _with_etcd_stopped(cluster: Cluster, work: Callable[[], object]) -> None:
    """As the documentation of etcd has it: API servers are stopped for a restore, and started after it."""
    for component in ("kube-apiserver", "etcd"):
        cluster.stop_component(component)
    work()
    for component in ("etcd", "kube-apiserver"):
        cluster.start_component(component)


def _replace(folder: Path, by: Path) -> None:
    shutil.rmtree(folder)
    by.rename(folder)


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "paged"])
async def test_an_object_that_does_not_fit_its_type_hides_no_other(
    client: Client, namespace: str, *, streamed: bool
) -> None:
    class Numbers(Object, frozen=True):
        resource: ClassVar[Resource] = ConfigMap.resource

        data: dict[str, int] = {}

    await client.create(ConfigMap, configmap("broken", value="seven"), namespace)
    for name in ("sound", "late"):
        await client.create(ConfigMap, configmap(name), namespace)
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as faulty:
        if not streamed:
            refusal = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            proxy.plant(Fault(when=is_watch, status=422, reason="Invalid", message=refusal))
        source = ApiSource(faulty, Numbers, Selection(namespace, fields="metadata.name!=kube-root-ca.crt"))
        cache = Cache(Numbers, source, metrics=faulty.metrics)
        task = asyncio.create_task(cache.run())
        with structlog.testing.capture_logs() as logs:
            await asyncio.wait_for(cache.synced(), 60)
        assert {item.name for item in cache} == {"sound", "late"}
        labels = {"resource": "configmaps"}
        assert faulty.metrics.registry.get_sample_value("kube_watch_undecodable_total", labels) == 1
        assert [log["name"] for log in logs if log["event"].startswith("object skipped")] == [f"{namespace}/broken"]
        # A change that cannot be read leaves what was there before; its deletion is noticed all the same.
        await client.patch(ConfigMap, "late", {"data": {"value": "eight"}}, namespace=namespace)
        await until(lambda: faulty.metrics.registry.get_sample_value("kube_watch_undecodable_total", labels) == 2)
        assert cache.get("late", namespace) is not None
        await client.delete(ConfigMap, "late", namespace)
        await until(lambda: cache.get("late", namespace) is None)
        task.cancel()


async def test_a_server_that_expires_every_version_is_not_asked_without_end(client: Client, namespace: str) -> None:
    backoff = Backoff(first=0.2, most=60.0)
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as faulty:
        proxy.plant(Fault(when=is_watch, status=410, reason="Expired", times=math.inf))
        source = ApiSource(faulty, ConfigMap, Selection(namespace))
        cache = Cache(ConfigMap, source, metrics=faulty.metrics, recovery=Recovery(backoff))
        began = time.monotonic()
        async with running(cache, synced=False):
            await until(lambda: len(proxy.watches) >= 5)
        # The second follows at once, and then there are three pauses, each at least half of its ceiling.
        assert time.monotonic() - began >= (0.2 + 0.4 + 0.8) / 2


async def test_a_kind_that_is_not_served_ends_a_cache_with_a_sync_timeout_at_once(client: Client) -> None:
    cache = Cache(Missing, ApiSource(client, Missing))
    with pytest.raises(CannotWatch, match="install its CRD"):
        async with asyncio.timeout(30):
            await cache.run(sync_timeout=60)
