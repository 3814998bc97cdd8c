"""Open pages follow changes, for as long as their viewer may see them."""

import asyncio
import time

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.console.page import Fragment, Page
from gpu_control_plane.kube import Client
from gpu_control_plane.local import Cluster
from integration.console.env import ALL, next_message, person, running_console
from integration.console.objects import a_card
from waiting import until


async def _count(request: Request) -> str:
    fleet = await request.app.state.fleet(request.state.viewer)
    return f"<p>{len(fleet.cards)} cards</p>"


async def _nothing(_request: Request) -> Response:
    return PlainTextResponse("")


PAGES = (
    Page(
        path="/test/live",
        show=_nothing,
        live=(Fragment(target="counts", kinds=(GPUDevice,), render=_count, shared=True),),
    ),
)
PAGE = {"page": "/test/live"}
SSE = {"Accept": "text/html, text/event-stream"}


async def test_a_change_arrives_within_a_second(cluster: Cluster, client: Client) -> None:
    admin = await person(client, ALL)
    async with (
        running_console(cluster.kubeconfig, PAGES) as console,
        console.browser(admin.token) as browser,
        browser.get("/stream", params=PAGE, headers=SSE) as stream,
    ):
        assert stream.status == 200
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        first = await next_message(stream.content)
        assert '<hx-partial hx-target="#counts"' in first
        took = []
        for _ in range(3):
            begun = time.monotonic()
            card = await a_card(client)
            assert "hx-partial" in await next_message(stream.content)
            took.append(time.monotonic() - begun)
            await client.delete(GPUDevice, card.name)
            await next_message(stream.content)
        # Batched at two a second; the bound leaves room for a busy machine.
        assert min(took) < 1.0, took


async def test_many_changes_are_few_messages(cluster: Cluster, client: Client) -> None:
    admin = await person(client, ALL)
    async with (
        running_console(cluster.kubeconfig, PAGES) as console,
        console.browser(admin.token) as browser,
        browser.get("/stream", params=PAGE, headers=SSE) as stream,
    ):
        await next_message(stream.content)
        begun = time.monotonic()
        for _ in range(40):
            await a_card(client)
        total = len(await client.list(GPUDevice))
        messages = 0
        message = ""
        while f"{total} cards" not in message:
            message = await next_message(stream.content)
            messages += 1
        assert messages <= 2 * (time.monotonic() - begun) + 2


async def test_a_stream_ends_with_its_session(cluster: Cluster, client: Client) -> None:
    admin = await person(client, ALL)
    async with (
        running_console(cluster.kubeconfig, PAGES) as console,
        console.browser(admin.token) as browser,
        browser.get("/stream", params=PAGE, headers=SSE) as stream,
    ):
        await next_message(stream.content)
        assert console.value("gpu_console_streams") == 1
        async with browser.post("/sign-out", allow_redirects=False) as out:
            assert out.status == 303
        async with asyncio.timeout(10):
            await stream.content.read()
        await until(lambda: console.value("gpu_console_streams") == 0)
        async with browser.get("/stream", params=PAGE, headers=SSE) as again:
            assert again.status == 401


async def test_only_pages_can_be_followed(cluster: Cluster, client: Client) -> None:
    admin = await person(client, ALL)
    async with running_console(cluster.kubeconfig, PAGES) as console, console.browser(admin.token) as browser:
        for page in ("/nothing", "", "/stream", "https://evil.example/"):
            async with browser.get("/stream", params={"page": page}, headers=SSE) as answer:
                assert answer.status == 404
