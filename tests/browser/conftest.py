"""A real Chromium for every test here, and one cluster with a controller, simulated nodes and a console."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, ViewportSize, async_playwright

from browser.axe import NoAxe, axe_source
from browser.direct import DirectConsole, GivenFleet, serving
from browser.sample_fleet import sample_card_history, sample_fleet, sample_history, sample_objects
from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.installation.policies import install_policies
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.progress import Quiet
from integration.console.env import RunningConsole, running_console
from integration.flow.env import FlowEnv, flow_env
from waiting import until_async

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LIVE: Final = "document.querySelector('#live')?._htmx?.sse?.status === 200"
"""Whether the page follows its stream."""
SIZE: Final = ViewportSize(width=1440, height=900)


class Tab:
    """A page of somebody's browser that remembers what went wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(f"{message.type}: {message.text}")


async def seen(page: Page, expression: str) -> None:
    """Wait until an expression is true in the page. Playwright's own way of waiting runs `eval` there, which the
    content security policy forbids."""
    await until_async(lambda: page.evaluate(expression), saying=expression)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is. In CI, a machine without one is an error and no excuse."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        _without("Chromium is not installed: apt-get install chromium fonts-dejavu-core")
    assert found is not None
    return found


@pytest.fixture(scope="session")
def axe() -> str:
    try:
        return axe_source()
    except NoAxe as why:
        _without(str(why))
        raise


def _without(why: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=chromium)
        yield launched
        await launched.close()


@asynccontextmanager
async def open_tab(browser: Browser, **options: object) -> AsyncIterator[Tab]:
    """A browser of its own, with one page in it."""
    context: BrowserContext = await browser.new_context(viewport=SIZE, **options)  # type: ignore[arg-type]
    context.set_default_timeout(30_000)
    try:
        yield Tab(await context.new_page())
    finally:
        await context.close()


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def sample() -> AsyncIterator[DirectConsole]:
    """A console over a small fleet with a bit of everything."""
    fleet = sample_fleet()
    caches = GivenFleet(fleet, **sample_objects())  # type: ignore[arg-type]
    async with serving(caches, history=sample_history(fleet), card_history=sample_card_history(fleet)) as console:
        yield console


@pytest.fixture(scope="module")
def whole_cluster(tmp_path_factory: pytest.TempPathFactory, chromium: str) -> Iterator[Cluster]:
    """Every component of Kubernetes, with our CRDs and policies."""
    folder = tmp_path_factory.mktemp("browser")
    with Cluster(folder / "cluster", ensure_binaries([*Component]), Settings(), Quiet()) as cluster:
        install_crds(cluster.kubeconfig)
        install_policies(cluster.kubeconfig)
        yield cluster


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def env(whole_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FlowEnv]:
    """Controller and simulated nodes: two, with four cards each, and a pool that selects them."""
    folder: Path = tmp_path_factory.mktemp("flow")
    async with flow_env(whole_cluster, folder) as made:
        await asyncio.gather(
            made.start_controller(),
            made.add_nodes("h200-1", "h200-2", cards=4),
            made.add_pool("training", deviceSelector={"include": {"products": ["*H200*"]}}),
        )
        await made.devices_known(8)
        yield made


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def console(env: FlowEnv) -> AsyncIterator[RunningConsole]:
    async with running_console(env.cluster.kubeconfig) as running:
        yield running
