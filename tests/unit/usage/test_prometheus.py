"""Prometheus is found by the labels of its Service, and asked through the API server, with the rights of the asker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from fault_proxy import plain_kubeconfig
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.usage.prometheus import PrometheusError, find_prometheus

SERVICE = {
    "metadata": {"name": "prometheus-operated", "namespace": "monitoring"},
    "spec": {"ports": [{"name": "grpc", "port": 10901}, {"name": "web", "port": 9090}]},
}
PROXY = "/api/v1/namespaces/monitoring/services/prometheus-operated:9090/proxy/api/v1/query"


def _forbidden() -> web.Response:
    return web.json_response({"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}, status=403)


@asynccontextmanager
async def api_server(folder: Path, *, label: str, answer: object = None, listing: bool = True) -> AsyncIterator[Client]:
    """An API server with one Service, found by `label`, that passes questions on; `answer` None refuses them."""

    async def services(request: web.Request) -> web.Response:
        if not listing:
            return _forbidden()
        return web.json_response({"items": [SERVICE] if request.query.get("labelSelector") == label else []})

    async def query(request: web.Request) -> web.Response:
        assert request.query["query"] == "up"
        return web.json_response(answer) if answer is not None else _forbidden()

    app = web.Application()
    app.router.add_get("/api/v1/services", services)
    app.router.add_get(PROXY, query)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    path = folder / "kubeconfig"
    path.write_bytes(plain_kubeconfig(f"http://127.0.0.1:{runner.addresses[0][1]}"))
    try:
        async with Client(load_config(path)) as client:
            yield client
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("label", ["operated-prometheus=true", "app.kubernetes.io/name=prometheus", "app=prometheus"])
async def test_it_is_found_and_asked_through_the_api_server(tmp_path: Path, label: str) -> None:
    data = {"resultType": "vector", "result": [{"metric": {"namespace": "a"}, "value": [1.5, "3.25"]}]}
    async with api_server(tmp_path, label=label, answer={"status": "success", "data": data}) as client:
        found = await find_prometheus(client)
        assert found is not None
        assert found.where == "service monitoring/prometheus-operated"
        (sample,) = await found.ask("up")
        assert (sample.labels, sample.value) == ({"namespace": "a"}, 3.25)


async def test_what_cannot_be_asked_says_why(tmp_path: Path) -> None:
    async with api_server(tmp_path, label="app=prometheus") as client:
        found = await find_prometheus(client)
        assert found is not None
        with pytest.raises(PrometheusError, match="behind service monitoring/prometheus-operated does not answer: no"):
            await found.ask("up")
    wrong = {"status": "error", "error": "parse error at char 3"}
    async with api_server(tmp_path, label="app=prometheus", answer=wrong) as client:
        found = await find_prometheus(client)
        assert found is not None
        with pytest.raises(PrometheusError, match="does not understand: parse error at char 3"):
            await found.ask("up")


async def test_who_may_not_list_services_has_none(tmp_path: Path) -> None:
    async with api_server(tmp_path, label="app=prometheus", listing=False) as client:
        assert await find_prometheus(client) is None
