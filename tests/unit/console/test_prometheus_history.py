"""Plots from Prometheus: a day of samples, or none where it does not answer."""

import time

from aiohttp import web
from aiohttp.test_utils import TestServer

from gpu_control_plane.api.gpudevice import PCI, DeviceSpec, DeviceStatus, GPUDevice, Hardware, Vendor
from gpu_control_plane.console.prometheus_history import PrometheusHistory
from gpu_control_plane.kube.objects import ObjectMeta


async def test_a_day_of_samples_is_asked_for_once_a_minute() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query["query"])
        assert float(request.query["end"]) - float(request.query["start"]) == 24 * 3600
        value = "8" if "total" in request.query["query"] else "5"
        start = float(request.query["start"])
        values = [[start, value], [start + 300, value]]
        return web.json_response({"status": "success", "data": {"result": [{"metric": {}, "values": values}]}})

    app = web.Application()
    app.router.add_get("/prometheus/api/v1/query_range", answer)
    async with TestServer(app) as server:
        prometheus = PrometheusHistory(str(server.make_url("/prometheus/")))
        samples = await prometheus.of_pool("training")
        await prometheus.of_pool("training")
    assert [(sample.total, sample.used, sample.held_idle) for sample in samples] == [(8, 5, None), (8, 5, None)]
    assert sorted(asked) == [f'sum(gpupool_capacity_{what}{{pool="training"}})' for what in ("total", "used")]


async def test_a_card_is_asked_for_by_its_identity_and_has_gaps_where_nothing_was_measured() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query["query"])
        end = float(request.query["end"])
        known = (end - 900, end - 300) if "GPU_UTIL" in request.query["query"] else (end - 600,)
        values = [[at, "41.7"] for at in known] if "FB_USED" not in request.query["query"] else []
        return web.json_response({"data": {"result": [{"metric": {}, "values": values}]}})

    app = web.Application()
    app.router.add_get("/api/v1/query_range", answer)
    async with TestServer(app) as server:
        prometheus = PrometheusHistory(str(server.make_url("")))
        readings = await prometheus.of_card(_card(uuid='GPU-1"'))
        await prometheus.of_card(_card(uuid='GPU-1"'))
        assert len(asked) == 4
        assert all('UUID="GPU-1\\""' in query for query in asked)
        await prometheus.of_card(_card(uuid=None))
    assert [read.utilisation for read in readings] == [41, None, 41, None]
    assert [read.temperature for read in readings] == [None, 41, None, None]
    assert {read.memory_used_mib for read in readings} == {None}
    assert 'Hostname="worker-3",pci_bus_id="00000000:3B:00.0"' in asked[-1]


def _card(*, uuid: str | None) -> GPUDevice:
    pci = PCI(vendor="10de", device="2335", class_="0302", address="0000:3b:00.0")
    hardware = Hardware(vendor=Vendor.NVIDIA, product="NVIDIA H200", uuid=uuid, pci=pci)
    return GPUDevice(
        metadata=ObjectMeta(name="worker-3-0000-3b-00-0"),
        spec=DeviceSpec(node_name="worker-3", pci_address="0000:3b:00.0"),
        status=DeviceStatus(hardware=hardware),
    )


async def test_without_an_answer_there_are_no_samples() -> None:
    async def broken(_request: web.Request) -> web.Response:
        return web.Response(status=503)

    app = web.Application()
    app.router.add_get("/api/v1/query_range", broken)
    async with TestServer(app) as server:
        address = str(server.make_url(""))
        assert await PrometheusHistory(address).of_pool("training") == ()
    begun = time.monotonic()
    assert await PrometheusHistory(address).of_pool("training") == ()
    assert time.monotonic() - begun < 30
