"""Plots of pools from Prometheus: a day of samples, or none where it does not answer."""

import time

from aiohttp import web
from aiohttp.test_utils import TestServer

from gpu_control_plane.console.prometheus_capacity import PrometheusCapacity


async def test_a_day_of_samples_is_asked_for_once_a_minute() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query["query"])
        assert float(request.query["end"]) - float(request.query["start"]) == 24 * 3600
        value = "8" if "total" in request.query["query"] else "5"
        values = [[1700000000, value], [1700000300, value]]
        return web.json_response({"status": "success", "data": {"result": [{"metric": {}, "values": values}]}})

    app = web.Application()
    app.router.add_get("/prometheus/api/v1/query_range", answer)
    async with TestServer(app) as server:
        prometheus = PrometheusCapacity(str(server.make_url("/prometheus/")))
        samples = await prometheus.of("training")
        await prometheus.of("training")
    assert [(sample.total, sample.used, sample.held_idle) for sample in samples] == [(8, 5, None), (8, 5, None)]
    assert sorted(asked) == [f'sum(gpupool_capacity_{what}{{pool="training"}})' for what in ("total", "used")]


async def test_without_an_answer_there_are_no_samples() -> None:
    async def broken(_request: web.Request) -> web.Response:
        return web.Response(status=503)

    app = web.Application()
    app.router.add_get("/api/v1/query_range", broken)
    async with TestServer(app) as server:
        address = str(server.make_url(""))
        assert await PrometheusCapacity(address).of("training") == ()
    begun = time.monotonic()
    assert await PrometheusCapacity(address).of("training") == ()
    assert time.monotonic() - begun < 30
