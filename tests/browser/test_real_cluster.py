"""People and the console over a real cluster, in a real browser."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from playwright.async_api import Browser, Page, expect

from browser.conftest import LIVE, Tab, open_tab, seen
from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import Forbidden
from integration.console.env import (
    ALL,
    READ_FLEET,
    READ_PODS,
    PersonWithToken,
    RunningConsole,
    new_namespace,
    person,
)
from integration.flow.env import FlowEnv
from integration.kinds import Pod
from integration.rbac import ServiceAccount
from waiting import until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

_ROW = "tr:has([data-choose])"


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def admin(env: FlowEnv) -> PersonWithToken:
    return await person(env.client, ALL)


@asynccontextmanager
async def signed_in(browser: Browser, console: RunningConsole, who: PersonWithToken) -> AsyncIterator[Tab]:
    """A browser in which somebody has pasted their token."""
    async with open_tab(browser) as tab:
        await tab.page.goto(f"{console.url}/")
        await tab.page.fill("#token", who.token)
        await tab.page.press("#token", "Enter")
        await tab.page.wait_for_url(f"{console.url}/")
        yield tab


async def test_approving_a_card_makes_the_pool_grow_before_the_eyes_of_whoever_looks(
    browser: Browser, console: RunningConsole, env: FlowEnv, admin: PersonWithToken
) -> None:
    async with signed_in(browser, console, admin) as looking, signed_in(browser, console, admin) as approving:
        await looking.page.goto(f"{console.url}/pools/training")
        total = looking.page.locator("[data-figure=total]")
        before = int(await total.inner_text())

        page = approving.page
        await page.goto(f"{console.url}/approvals")
        row = page.locator(_ROW).first
        name = await row.locator("[data-choose]").get_attribute("value")
        await row.locator("[data-choose]").check()
        await page.select_option("#approvals select[name=pool]", "training")
        await page.fill("#approvals input[name=why]", "new rack")
        await expect(page.locator("#plan")).to_contain_text(f"{before} → {before + 1}")
        await expect(page.locator("#plan code")).to_contain_text(f"kubectl gpu approve {name} --pool training")
        await page.click("#approve")
        await expect(page.locator("#outcome")).to_contain_text("Done: 1 card is changed.")

        await expect(total).to_have_text(str(before + 1), timeout=60_000)
        await expect(page.locator(f"[data-choose][value='{name}']")).to_have_count(0, timeout=60_000)
        await page.goto(f"{console.url}/cards/{name}")
        await expect(page.locator(".timeline")).to_contain_text("new rack")
        assert looking.errors == []
        assert approving.errors == []
    assert (await env.client.get(GPUDevice, name or "")).metadata.annotations[Annotation.ASSIGNMENT] == "training"


async def test_keyboard_alone_suffices_to_approve(
    browser: Browser, console: RunningConsole, env: FlowEnv, admin: PersonWithToken
) -> None:
    async with signed_in(browser, console, admin) as tab:
        page = tab.page
        await page.goto(f"{console.url}/approvals")
        await _tab_to(page, "input[data-choose]")
        await page.keyboard.press("Space")
        name = await page.evaluate("document.activeElement.value")
        await _tab_to(page, "select[name=pool]")
        await page.keyboard.type("training")
        await _tab_to(page, "input[name=why]")
        await page.keyboard.type("by keyboard")
        await _tab_to(page, "#approve")
        await page.keyboard.press("Enter")
        await expect(page.locator("#outcome")).to_contain_text("Done: 1 card is changed.")
        assert tab.errors == []
    card = await env.client.get(GPUDevice, name)
    assert card.metadata.annotations[Annotation.ASSIGNMENT] == "training"


async def test_holding_a_card_back_says_so_and_shows_its_command(
    browser: Browser, console: RunningConsole, env: FlowEnv, admin: PersonWithToken
) -> None:
    async with signed_in(browser, console, admin) as tab:
        page = tab.page
        await page.goto(f"{console.url}/approvals")
        box = page.locator("[data-choose]").last
        name = await box.get_attribute("value")
        await box.check()
        await page.click("button[formaction='/actions/hold']")
        await expect(page.locator("#outcome")).to_contain_text("Done: 1 card is changed.")
        await expect(page.locator("#outcome code")).to_contain_text(f"kubectl gpu hold {name}")
        assert tab.errors == []
    assert Annotation.HOLD in (await env.client.get(GPUDevice, name or "")).metadata.annotations


async def _tab_to(page: Page, selector: str) -> None:
    """Press Tab until something that fits has the focus."""
    for _ in range(120):
        await page.keyboard.press("Tab")
        if await page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"Tab does not reach {selector}")


async def test_a_viewer_sees_the_fleet_and_cannot_approve(
    browser: Browser, console: RunningConsole, env: FlowEnv
) -> None:
    viewer = await person(env.client, [*READ_FLEET, *READ_PODS])
    async with signed_in(browser, console, viewer) as tab:
        page = tab.page
        await page.goto(f"{console.url}/approvals")
        await page.locator("[data-choose]").first.check()
        name = await page.locator("[data-choose]").first.get_attribute("value")
        await expect(page.locator("#approve")).to_be_disabled()
        await expect(page.locator("#approvals")).to_contain_text("patch gpudevices.gpu.deckhouse.io")
        await expect(page.locator("#plan")).to_contain_text("→")
        answer = await page.evaluate(
            "name => fetch('/actions/approve', {method: 'POST', body: new URLSearchParams({card: name})})"
            ".then(answer => answer.status)",
            name,
        )
        assert answer == 403
    card = await env.client.get(GPUDevice, name or "")
    assert Annotation.ASSIGNMENT not in card.metadata.annotations


async def test_a_tenant_sees_only_the_pods_of_its_namespaces(
    browser: Browser, console: RunningConsole, env: FlowEnv
) -> None:
    own, other = await new_namespace(env.client), await new_namespace(env.client)
    await asyncio.gather(_waiting_pod(env.client, own, "mine"), _waiting_pod(env.client, other, "theirs"))
    tenant = await person(env.client, READ_PODS, namespaces=[own])
    everybody = await person(env.client, [*READ_FLEET, *READ_PODS])
    async with signed_in(browser, console, everybody) as tab:
        await tab.page.goto(f"{console.url}/workloads")
        await expect(tab.page.locator("#pods")).to_contain_text(f"{other}/theirs")
    async with signed_in(browser, console, tenant) as tab:
        page = tab.page
        await page.goto(f"{console.url}/workloads")
        await expect(page.locator("#pods")).to_contain_text(f"{own}/mine")
        assert other not in await page.content()
        answer = await page.goto(f"{console.url}/pods/{own}/mine")
        assert answer is not None
        assert answer.status == 200
        await expect(page.locator("#cause")).to_contain_text("training")
        assert other not in await page.content()
        answer = await page.goto(f"{console.url}/pods/{other}/theirs")
        assert answer is not None
        assert answer.status == 403
        csv = await page.evaluate("fetch('/workloads.csv').then(answer => answer.text())")
        assert "mine" in csv
        assert "theirs" not in csv


async def _waiting_pod(client: Client, namespace: str, name: str) -> None:
    limits = {"gpu.deckhouse.io/training": "64"}
    container = {"name": "main", "image": "any", "resources": {"limits": limits}}

    async def made() -> bool:
        try:
            await client.create(Pod, {"metadata": {"name": name}, "spec": {"containers": [container]}}, namespace)
        except Forbidden:
            return False  # its service account, or the pool, is not known yet
        return True

    await until_async(lambda: _has_account(client, namespace), within=60, saying="the namespace has its account")
    await until_async(made, within=60, saying=f"{name} is admitted")


async def _has_account(client: Client, namespace: str) -> bool:
    from gpu_control_plane.kube import Selection  # noqa: PLC0415

    return bool(await client.list(ServiceAccount, Selection(namespace, fields="metadata.name=default")))


async def test_a_foreign_origin_cannot_post_with_the_session_of_somebody(
    browser: Browser, console: RunningConsole, env: FlowEnv, admin: PersonWithToken
) -> None:
    card = next(iter(await env.devices()))
    async with signed_in(browser, console, admin) as tab:
        cookies = await tab.page.context.cookies()
        async with _foreign_site(console.url, card) as address:
            answers: list[Any] = []
            tab.page.on("response", lambda answer: answers.append((answer.url, answer.status)))
            await tab.page.goto(address)
            await tab.page.click("button")
            await tab.page.wait_for_load_state()
        assert (f"{console.url}/actions/retire", 403) in answers
    async with ClientSession(cookies={each["name"]: each["value"] for each in cookies}) as session:
        headers = {"Origin": "https://evil.example.com"}
        async with session.post(f"{console.url}/actions/retire", data={"card": card}, headers=headers) as answer:
            assert answer.status == 403
    assert not (await env.client.get(GPUDevice, card)).ignored


@asynccontextmanager
async def _foreign_site(console: str, card: str) -> AsyncIterator[str]:
    """Another site, on another port, with a form that posts to the console."""
    page = (
        f'<!doctype html><form method="post" action="{console}/actions/retire">'
        f'<input name="card" value="{card}"><button>Win a prize</button></form>'
    ).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + page)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://localhost:{server.sockets[0].getsockname()[1]}/"


async def test_a_change_is_on_the_open_page_within_a_second(
    browser: Browser, console: RunningConsole, env: FlowEnv, admin: PersonWithToken
) -> None:
    devices = sorted(await env.devices())
    taken: list[float] = []
    async with signed_in(browser, console, admin) as tab:
        page = tab.page
        await page.goto(f"{console.url}/approvals?reason=all")
        await seen(page, LIVE)
        await asyncio.sleep(1)  # the first message of the stream has come, and changes are looked for again
        waiting = [name for name in devices if await page.locator(f"[data-choose][value='{name}']").count()]
        for number, name in enumerate(waiting[-3:]):
            begun = time.perf_counter()
            body = {"metadata": {"annotations": {Annotation.HOLD: f"look {number}"}}}
            await env.client.patch(GPUDevice, name, body)
            await expect(page.locator(f"#row-{name}")).to_contain_text(f"look {number}")
            taken.append(time.perf_counter() - begun)
            await asyncio.sleep(0.7)  # people do not change everything at once, either
        assert tab.errors == []
    print("on the open page after", ", ".join(f"{seconds * 1000:.0f} ms" for seconds in taken))  # noqa: T201 - for docs/console-tour.md
    assert min(taken) < 1, taken
    assert max(taken) < 10, taken


async def test_every_page_of_the_real_cluster_opens_without_an_error(
    browser: Browser, console: RunningConsole, env: FlowEnv, admin: PersonWithToken
) -> None:
    card = min(await env.devices())
    paths = (
        "/",
        "/?pool=training",
        "/approvals?reason=all",
        "/pools",
        "/pools?namespace=default",
        "/pools/training",
        "/preview?pool=training",
        "/nodes",
        "/nodes/h200-1",
        "/cards?filter=h200&sort=-busy",
        f"/cards/{card}",
        "/workloads",
        "/stack",
        "/events",
        "/settings",
    )
    async with signed_in(browser, console, admin) as tab:
        for path in paths:
            answer = await tab.page.goto(f"{console.url}{path}")
            assert answer is not None
            assert answer.status == 200, path
            await expect(tab.page.locator("h1")).to_have_count(1)
        await tab.page.goto(f"{console.url}/pools?namespace=default")
        await expect(tab.page.locator("#pools")).to_contain_text("default can get")
        await tab.page.goto(f"{console.url}/preview?pool=training")
        await tab.page.click("form button.primary")
        await expect(tab.page.locator("#result")).to_contain_text("Nothing was to be done.")
        assert tab.errors == []
