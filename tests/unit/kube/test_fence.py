"""A fenced write is sent only while writing is allowed, however long it has had to wait before and between attempts."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from fault_proxy import plain_config
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import LeadershipLost
from gpu_control_plane.kube.leader import Lease
from gpu_control_plane.kube.transport import Fence


class Requests:
    """What a server has been asked that tells everybody to come back later."""

    def __init__(self) -> None:
        self.count = 0

    async def refuse(self, _request: web.Request) -> web.Response:
        self.count += 1
        return web.Response(status=429, headers={"Retry-After": "0"})


@asynccontextmanager
async def refusing_server() -> AsyncIterator[tuple[Client, Requests]]:
    requests = Requests()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", requests.refuse)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with Client(plain_config(f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
            yield client, requests
    finally:
        await runner.cleanup()


def closing(when: Callable[[], bool]) -> Fence:
    def fence() -> None:
        if when():
            raise LeadershipLost("another process leads")

    return fence


@pytest.mark.parametrize("attempts", [0, 1, 2, 3])
async def test_nothing_is_sent_after_leadership_ended_while_the_server_asked_to_wait(attempts: int) -> None:
    async with refusing_server() as (client, requests):
        fenced = client.fenced(closing(lambda: requests.count >= attempts))
        with pytest.raises(LeadershipLost):
            await fenced.patch(Lease, "a", {}, namespace="b")
        assert requests.count == attempts


async def test_nothing_is_sent_on_a_connection_that_came_too_late() -> None:
    async with refusing_server() as (client, requests):
        # Asked when the write begins, and again when there is a connection: by then it is over.
        answers = iter((False, True))
        fenced = client.fenced(closing(lambda: next(answers)))
        with pytest.raises(LeadershipLost):
            await fenced.delete(Lease, "a", "b")
        assert (list(answers), requests.count) == ([], 0)
