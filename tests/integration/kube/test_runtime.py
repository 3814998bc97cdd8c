"""The documented example as a whole process: it works, can be looked into, stops in order and fails in one sentence."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from examples.namespace_quotas import ResourceQuota, build

from fault_proxy import FaultProxy
from gpu_control_plane.kube import Client, Runtime, Selection, Timing
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.leader import Lease
from gpu_control_plane.local import Cluster
from integration.conftest import Namespace
from waiting import until, until_async

ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def example(proxy: FaultProxy, namespace: str, timing: Timing | None = None) -> AsyncIterator[Runtime]:
    runtime = Runtime(
        "namespace-quotas",
        config=proxy.config,
        namespace=namespace,
        timing=timing,
        status_port=0,
        status_host="127.0.0.1",
    )
    build(runtime)
    task = asyncio.create_task(runtime.run())
    try:
        # It holds the lease before it begins to lead: wait for the metric.
        leading = {"lease": "namespace-quotas"}
        await until(lambda: runtime.metrics.registry.get_sample_value("kube_leading", leading) or task.done())
        yield runtime
    finally:
        runtime.stop()
        await task


async def test_the_example_keeps_quotas_and_repairs_them(client: Client, namespace: str) -> None:
    async with FaultProxy.before(client.config) as proxy, example(proxy, namespace):
        await client.patch(Namespace, namespace, {"metadata": {"labels": {"example.com/cpus": "4"}}})

        async def quota_is(cpus: str) -> bool:
            try:
                return (await client.get(ResourceQuota, "team", namespace)).spec.hard == {"requests.cpu": cpus}
            except NotFound:
                return False

        await until_async(lambda: quota_is("4"))
        await client.patch(ResourceQuota, "team", {"spec": {"hard": {"requests.cpu": "99"}}}, namespace=namespace)
        await until_async(lambda: quota_is("4"))
        await client.delete(ResourceQuota, "team", namespace)
        await until_async(lambda: quota_is("4"))
        await client.patch(Namespace, namespace, {"metadata": {"labels": {"example.com/cpus": "8"}}})
        await until_async(lambda: quota_is("8"))
    events = await client.list(Event, Selection("default", fields=f"reason=QuotaSet,regarding.name={namespace}"))
    assert {event.note for event in events} == {"the namespace may use 4 CPUs", "the namespace may use 8 CPUs"}


async def test_an_idle_process_writes_nothing_but_its_lease(client: Client, namespace: str) -> None:
    timing = Timing(renewal=1.0)
    async with FaultProxy.before(client.config) as proxy, example(proxy, namespace, timing):
        await client.patch(Namespace, namespace, {"metadata": {"labels": {"example.com/cpus": "4"}}})
        await until(lambda: any("events" in request.path and code < 300 for request, code in proxy.answers))
        before = len(proxy.requests)
        await asyncio.sleep(2.5 * timing.renewal)  # the idleness itself
        since = proxy.requests[before:]
        assert since, "the lease must have been renewed"
        assert {(request.method, request.path.split("/")[-2]) for request in since} == {("PATCH", "leases")}


async def test_a_process_can_be_looked_into(client: Client, namespace: str) -> None:
    async with (
        FaultProxy.before(client.config) as proxy,
        example(proxy, namespace) as runtime,
        aiohttp.ClientSession(f"http://127.0.0.1:{runtime.status.port}") as session,
    ):
        assert (await session.get("/healthz")).status == 200
        ready = await session.get("/readyz")
        assert "[+] cache namespaces: ok" in await ready.text()
        # To lead comes first, and then the work.
        done = {"controller": "quotas", "result": "done"}
        await until(lambda: runtime.metrics.registry.get_sample_value("kube_reconciles_total", done))
        metrics = await (await session.get("/metrics")).text()
        assert 'kube_leading{lease="namespace-quotas"} 1.0' in metrics
        assert re.search(r'kube_api_requests_total\{code="200",resource="namespaces",verb="watch"\} 1\.0', metrics)
        assert re.search(r'kube_reconciles_total\{controller="quotas",result="done"\} \d', metrics)


async def test_an_orderly_end_releases_the_lease(client: Client, namespace: str) -> None:
    async with FaultProxy.before(client.config) as proxy:
        async with example(proxy, namespace) as runtime:
            assert runtime.leading
        assert (await client.get(Lease, "namespace-quotas", namespace)).spec.holder_identity == ""


async def ending(*arguments: str, kubeconfig: Path) -> str:
    """Run a program that must end in failure, and return the one sentence it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        env={"KUBECONFIG": str(kubeconfig), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    sentences = [line for line in said.decode().splitlines() if not line.startswith("{")]
    assert len(sentences) == 1, said.decode()
    return sentences[0]


async def test_a_wrong_kubeconfig_is_one_sentence(tmp_path: Path) -> None:
    said = await ending("-m", "examples.namespace_quotas", kubeconfig=tmp_path / "nothing")
    assert "nothing" in said


async def test_an_unreachable_server_is_one_sentence(api_server: Cluster, tmp_path: Path) -> None:
    other = tmp_path / "kubeconfig"
    other.write_text(api_server.kubeconfig.read_text().replace(api_server.server, "https://127.0.0.1:9"))
    program = """if True:
        from examples.namespace_quotas import build
        from gpu_control_plane.kube import main
        exit(main("lost", build, sync_timeout=0, status_port=None))
    """
    said = await ending("-c", program, kubeconfig=other)
    assert "cannot connect to the API server at https://127.0.0.1:9" in said
    assert "check that it is running" in said


async def test_a_kind_that_is_not_installed_is_one_sentence(api_server: Cluster) -> None:
    program = """if True:
        from gpu_control_plane.kube import main
        from integration.kinds import Missing
        exit(main("lost", lambda runtime: runtime.cache(Missing), status_port=None))
    """
    said = await ending("-c", program, kubeconfig=api_server.kubeconfig)
    assert "cannot watch missings.missing.example" in said
    assert "install its CRD" in said


async def test_a_taken_port_is_one_sentence(api_server: Cluster) -> None:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    program = f"""if True:
        from gpu_control_plane.kube import main
        exit(main("late", lambda runtime: None, status_host="127.0.0.1", status_port={port}))
    """
    said = await ending("-c", program, kubeconfig=api_server.kubeconfig)
    assert f"port {port} on 127.0.0.1 cannot be used" in said
    server.close()
