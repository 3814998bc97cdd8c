"""Whether a Secret exists is asked without reading it, and not more often than the interval says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from fault_proxy import plain_config
from gpu_control_plane.kube import Client
from gpu_control_plane.operator.driver_secrets import DriverSecrets


class _Server:
    """Answers each request to create a Secret with the status that is set."""

    def __init__(self) -> None:
        self.status = 201
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path_qs}")
        reason = {409: "AlreadyExists", 403: "Forbidden"}.get(self.status, "")
        return web.json_response({"metadata": {}, "reason": reason}, status=self.status)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            async with Client(plain_config(f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
                yield client
        finally:
            await runner.cleanup()


@pytest.mark.parametrize(("status", "missing"), [(201, {"one"}), (409, set()), (403, set())])
async def test_a_secret_is_missing_only_if_one_could_be_created(status: int, missing: set[str]) -> None:
    server = _Server()
    server.status = status
    async with server.client() as client:
        assert await DriverSecrets(client, "operands", interval=30).missing(["one"]) == missing
    assert server.asked == ["POST /api/v1/namespaces/operands/secrets?dryRun=All"]


async def test_an_answer_counts_for_the_interval() -> None:
    server, now = _Server(), [100.0]
    async with server.client() as client:
        secrets = DriverSecrets(client, "operands", interval=30, clock=lambda: now[0])
        assert await secrets.missing(["one", "one"]) == {"one"}
        server.status, now[0] = 409, 129.0
        assert await secrets.missing(["one"]) == {"one"}
        now[0] = 130.0
        assert await secrets.missing(["one"]) == set()
        assert await secrets.missing([]) == set()
    assert len(server.asked) == 2
