"""People see and do what RBAC lets them, whatever the console itself may."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.console.page import POST, Page, needs
from gpu_control_plane.console.pages import PAGES
from gpu_control_plane.kube import Client
from gpu_control_plane.local import Cluster
from integration.console.env import (
    ALL,
    READ_FLEET,
    READ_PODS,
    PersonWithToken,
    RunningConsole,
    new_namespace,
    person,
    running_console,
)
from integration.console.objects import a_card, a_waiting_pod
from waiting import until


async def _approve(request: Request) -> Response:
    body = {"metadata": {"annotations": {Annotation.ASSIGNMENT: "training"}}}
    await request.state.viewer.client.patch(GPUDevice, request.path_params["name"], body)
    return PlainTextResponse("done")


async def _pods(request: Request) -> Response:
    fleet = await request.app.state.fleet(request.state.viewer)
    users = {f"{user.namespace}/{user.pod}" for card in fleet.cards.values() for user in card.status.used_by}
    waiting = {f"{pod.metadata.namespace}/{pod.name}" for pod in fleet.waiting}
    return JSONResponse({"users": sorted(users), "waiting": sorted(waiting), "cards": len(fleet.cards)})


async def _hello(_request: Request) -> Response:
    return PlainTextResponse("hello")


async def _fail(_request: Request) -> Response:
    raise RuntimeError("secret of ours")


TEST_PAGES: Final = (
    *PAGES,
    Page(path="/test/approve/{name}", methods=POST, show=_approve),
    Page(path="/test/pods", show=_pods),
    Page(path="/test/failing", show=_fail),
    Page(path="/test/pool-admins", show=_hello, needs=(needs("patch", "gpupools.gpu.deckhouse.io"),)),
    Page(path="/test/in/{namespace}", show=_hello, needs=(needs("list", "pods", namespace_from="namespace"),)),
)


@pytest.fixture
async def console(cluster: Cluster) -> AsyncIterator[RunningConsole]:
    async with running_console(cluster.kubeconfig, TEST_PAGES) as running:
        yield running


async def test_a_viewer_cannot_write_and_an_administrator_can(console: RunningConsole, client: Client) -> None:
    card = await a_card(client)
    viewer, admin = await person(client, READ_FLEET), await person(client, ALL)
    async with console.browser(viewer.token) as browser, browser.post(f"/test/approve/{card.name}") as answer:
        assert answer.status == 403
        assert viewer.user in await answer.text()
    assert Annotation.ASSIGNMENT not in (await client.get(GPUDevice, card.name)).metadata.annotations
    async with console.browser(admin.token) as browser, browser.post(f"/test/approve/{card.name}") as answer:
        assert answer.status == 200
    assert (await client.get(GPUDevice, card.name)).metadata.annotations[Annotation.ASSIGNMENT] == "training"
    assert console.value("gpu_console_actions_total", route="/test/approve/{name}", outcome="refused") == 1
    assert console.value("gpu_console_actions_total", route="/test/approve/{name}", outcome="done") == 1


async def test_a_program_acts_with_its_token_alone(console: RunningConsole, client: Client) -> None:
    card = await a_card(client)
    admin = await person(client, ALL)
    async with console.program() as program:
        async with program.post(f"/test/approve/{card.name}", headers=admin.header) as answer:
            assert answer.status == 200
        async with program.post(
            f"/test/approve/{card.name}", headers=admin.header | {"Origin": "https://evil.example"}
        ) as answer:
            assert answer.status == 403


async def test_a_foreign_origin_cannot_post(console: RunningConsole, client: Client) -> None:
    card = await a_card(client)
    admin = await person(client, ALL)
    async with console.browser(admin.token) as browser:
        for headers in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "cross-site", "Origin": console.url},
        ):
            async with browser.post(f"/test/approve/{card.name}", headers=headers) as answer:
                assert answer.status == 403
    assert Annotation.ASSIGNMENT not in (await client.get(GPUDevice, card.name)).metadata.annotations


async def test_a_tenant_sees_the_pods_of_its_namespaces_only(console: RunningConsole, client: Client) -> None:
    mine, other = await new_namespace(client), await new_namespace(client)
    await a_card(client, users=((mine, "train-0"), (other, "secret-0")))
    await a_waiting_pod(client, mine, "train-1")
    await a_waiting_pod(client, other, "secret-1")
    tenant = await person(client, READ_PODS, namespaces=[mine])
    reader = await person(client, READ_FLEET)
    both = await person(client, [*READ_FLEET, *READ_PODS])

    async def sees(who: PersonWithToken) -> dict[str, Any]:
        async with console.program() as program, program.get("/test/pods", headers=who.header) as answer:
            found: dict[str, Any] = await answer.json()
            return found

    await until(lambda: len(console.caches.waiting) >= 2)
    tenants = await sees(tenant)
    assert tenants["waiting"] == [f"{mine}/train-1"]
    assert tenants["cards"] == 0  # may not list gpudevices
    readers = await sees(reader)
    assert readers["waiting"] == []
    assert "secret-0" not in str(readers)
    assert "train-0" not in str(readers)
    assert readers["cards"] != 0
    assert {f"{mine}/train-0", f"{other}/secret-0"} <= set((await sees(both))["users"])
    async with console.program() as program:
        async with program.get(f"/test/in/{mine}", headers=tenant.header) as answer:
            assert answer.status == 200
        async with program.get(f"/test/in/{other}", headers=tenant.header) as answer:
            assert answer.status == 403


async def test_a_page_names_the_missing_right(console: RunningConsole, client: Client) -> None:
    viewer = await person(client, READ_FLEET)
    async with console.browser(viewer.token) as browser, browser.get("/test/pool-admins") as answer:
        assert answer.status == 403
        assert "patch gpupools.gpu.deckhouse.io" in await answer.text()


async def test_rights_and_tokens_are_asked_for_rarely(console: RunningConsole, client: Client) -> None:
    viewer = await person(client, READ_FLEET)
    async with console.browser(viewer.token) as browser:
        for _ in range(20):
            async with browser.get("/") as answer:
                assert answer.status == 200
    assert console.value("gpu_console_reviews_total", kind="token", answer="yes") == 1
    assert console.value("gpu_console_reviews_total", kind="access", answer="yes") == 4


async def test_a_fault_of_ours_shows_nothing_of_it(console: RunningConsole, client: Client) -> None:
    admin = await person(client, ALL)
    async with console.browser(admin.token) as browser:
        async with browser.get("/test/failing") as answer:
            assert answer.status == 500
            assert "secret of ours" not in await answer.text()
            assert "Content-Security-Policy" in answer.headers
        async with browser.get("/test/pods") as answer:
            assert answer.status == 200
