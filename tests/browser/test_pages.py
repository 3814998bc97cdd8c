"""Every page over a fleet with a bit of everything: no errors, nothing that keeps anybody out, in both themes; and the
overview of the largest clusters."""

import asyncio
import time
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
import pytest
from playwright.async_api import Browser, Page, Route, expect

from browser.axe import violations
from browser.conftest import LIVE, SIZE, open_tab, seen
from browser.direct import Anybody, DirectConsole, GivenFleet, serving
from browser.sample_fleet import large_fleet, sample_fleet, sample_history, sample_objects
from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.views.fleet import Fleet

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

_CARD: Final = "h200-3-0000-77-00-0"
PATHS: Final = {
    "overview": "/",
    "approvals": "/approvals",
    "pools": "/pools",
    "pool": "/pools/training",
    "preview": "/preview?pool=training",
    "nodes": "/nodes",
    "node": "/nodes/h200-3",
    "cards": "/cards",
    "card": f"/cards/{_CARD}",
    "workloads": "/workloads",
    "usage": "/usage?since=30d",
    "usage by owner": "/usage?since=1d&by=owner",
    "pod": "/pods/team-a/llama-405b-0",
    "running pod": "/pods/team-a/llama-70b-0",
    "ray": "/ray",
    "stack": "/stack",
    "events": "/events",
    "settings": "/settings",
}
PICTURES: Final = {
    "light": ("overview", "approvals", "pool", "node", "card", "pod", "ray", "stack", "workloads"),
    "dark": ("overview",),
}
"""Those in the documentation."""
_SECOND_LINES_BESIDE_THE_FIRST: Final = (
    "[...document.querySelectorAll('.sub')].filter(e => getComputedStyle(e).display !== 'block').map(e => e.innerText)"
)
IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_page_is_clean_in_both_themes(
    browser: Browser, sample: DirectConsole, axe: str, theme: str, pytestconfig: pytest.Config
) -> None:
    wrong: list[str] = []
    async with open_tab(browser, color_scheme=theme, reduced_motion="reduce") as tab:
        for name, path in PATHS.items():
            answer = await tab.page.goto(sample.url + path)
            assert answer is not None
            assert answer.status == 200, path
            if name == "approvals":
                await _choose_three(tab.page)
            elif name == "card":
                await _try_clearing_the_fault(tab.page)
            wrong += [f"{path}: {found}" for found in await violations(tab.page, axe)]
            glued = await tab.page.evaluate(_SECOND_LINES_BESIDE_THE_FIRST)
            wrong += [f"{path}: {text} is not on a line of its own" for text in glued]
            if name in PICTURES[theme] and pytestconfig.getoption("screenshots"):
                await _picture(tab.page, f"console-{name}{'-dark' if theme == 'dark' else ''}")
        assert tab.errors == []
    assert not wrong, "\n".join(wrong)


async def _choose_three(page: Page) -> None:
    for box in (await page.locator("[data-choose]").all())[:3]:
        await box.check()
    await page.fill("#approvals input[name=why]", "new rack")
    await expect(page.locator("#plan code")).to_contain_text("new rack")


async def _try_clearing_the_fault(page: Page) -> None:
    form = page.locator("form[action='/actions/clear-fault']")
    await page.click("summary:has-text('Clear the fault')")
    await form.locator("input[name=why]").fill("riser replaced")
    await form.locator("button:has-text('Dry run')").click()
    await expect(form.locator("#result-clear-fault code")).to_contain_text("kubectl gpu clear-fault")


async def _picture(page: Page, name: str) -> None:
    """As a person sees it: the whole page, as high as what is on it, without a caret."""
    await page.set_viewport_size({"width": 1440, "height": 640})
    await page.evaluate("document.activeElement?.blur(); scrollTo(0, 0)")
    await page.wait_for_timeout(400)
    await page.screenshot(path=IMAGES / f"{name}.png", full_page=True)
    await page.set_viewport_size(SIZE)


@pytest.mark.parametrize("language", ["en", "ru"])
async def test_pages_fit_a_narrow_screen(browser: Browser, sample: DirectConsole, language: str) -> None:
    """Nothing is wider than 360 pixels, but what scrolls by itself."""
    async with open_tab(browser, locale=language) as tab:
        await tab.page.set_viewport_size({"width": 360, "height": 740})
        for path in PATHS.values():
            await tab.page.goto(sample.url + path)
            assert await tab.page.evaluate("document.documentElement.scrollWidth") <= 360, path
            assert await tab.page.evaluate("document.documentElement.lang") == language


async def test_theme_and_language_are_kept(browser: Browser, sample: DirectConsole) -> None:
    async with open_tab(browser, color_scheme="light") as tab:
        page = tab.page
        await page.goto(f"{sample.url}/nodes?sort=-name")
        await page.click("button[name=theme][value=dark]")
        await page.click("button[name=language][value=ru]")
        await page.wait_for_url(f"{sample.url}/nodes?sort=-name")
        await expect(page.locator("h1")).to_have_text("Узлы")
        assert await page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


async def test_who_may_not_write_is_told_which_right_is_missing(browser: Browser, axe: str) -> None:
    fleet = sample_fleet()
    caches = GivenFleet(fleet, **sample_objects())  # type: ignore[arg-type]
    viewer = Anybody(may_write=False)
    async with (
        serving(caches, viewer=viewer, history=sample_history(fleet)) as console,
        open_tab(browser) as tab,
    ):
        await tab.page.goto(f"{console.url}/cards/{_CARD}")
        await tab.page.click("summary:has-text('Retire')")
        button = tab.page.locator("form[action='/actions/retire'] button.danger")
        await expect(button).to_be_disabled()
        await expect(tab.page.locator("form[action='/actions/retire']")).to_contain_text(
            "patch gpudevices.gpu.deckhouse.io"
        )
        assert await violations(tab.page, axe) == []


async def test_an_empty_cluster_says_what_to_do_next(browser: Browser, axe: str) -> None:
    async with serving(GivenFleet(Fleet()), history=sample_history(Fleet())) as console, open_tab(browser) as tab:
        for path in ("/", "/approvals", "/pools", "/nodes", "/cards", "/workloads", "/usage", "/stack", "/events"):
            answer = await tab.page.goto(console.url + path)
            assert answer is not None
            assert answer.status == 200, path
            assert await tab.page.locator(".empty").count() >= 1, path
            assert await violations(tab.page, axe) == [], path
        assert tab.errors == []


async def test_the_overview_of_40_000_cards_stays_responsive(
    browser: Browser, axe: str, pytestconfig: pytest.Config
) -> None:
    fleet = large_fleet()
    caches = GivenFleet(fleet)
    async with serving(caches, history=sample_history(Fleet())) as console, open_tab(browser) as tab:
        page = tab.page
        begun = time.perf_counter()
        answer = await page.goto(f"{console.url}/")
        assert answer is not None
        first = time.perf_counter() - begun
        await seen(page, "document.querySelector('#map-canvas')?.height > 200")
        drawn = time.perf_counter() - begun
        size = len(await answer.body())
        await seen(page, LIVE)

        await page.focus("#map-canvas")
        for key in ("ArrowRight", "ArrowDown", "ArrowRight"):
            await page.keyboard.press(key)
        await expect(page.locator("#map-zoom .cell")).to_have_count(8)
        if pytestconfig.getoption("screenshots"):
            await _picture(page, "console-map-40000")
        await page.focus("#map-canvas")
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.closest('#map-zoom') !== null")

        waits = []
        for number in range(3):
            await page.wait_for_timeout(3000)  # a change after a quiet while, not one after the other
            fleet = _with_faults(fleet, 1000, number)
            begun = time.perf_counter()
            before = await page.get_attribute("#fleet-map", "data-version")
            caches.change(fleet, GPUDevice)
            await seen(page, f"document.querySelector('#fleet-map')?.dataset.version !== '{before}'")
            waits.append(time.perf_counter() - begun)
        blocked = await page.evaluate(_LONGEST_TASK)

        assert await violations(page, axe) == []
        assert tab.errors == []
    print(  # noqa: T201 - for docs/console-tour.md
        f"40,000 cards: page {first * 1000:.0f} ms and {size / 1024:.0f} KiB, map drawn after {drawn * 1000:.0f} ms; "
        f"1,000 changed cards on screen after {median(waits) * 1000:.0f} ms; longest task {blocked:.0f} ms"
    )
    assert size < 256 * 1024
    assert drawn < 30
    assert median(waits) < 20


async def test_a_page_whose_stream_fails_at_first_becomes_live(browser: Browser, sample: DirectConsole) -> None:
    tried: list[str] = []

    async def fail_once(route: Route) -> None:
        tried.append(route.request.url)
        await (route.abort() if len(tried) == 1 else route.continue_())

    async with open_tab(browser) as tab:
        await tab.page.route("**/stream?**", fail_once)
        await tab.page.goto(f"{sample.url}/")
        await seen(tab.page, LIVE)
    assert len(tried) == 2


async def test_a_plan_is_made_of_what_was_chosen_last_however_slow_the_one_before(
    browser: Browser, sample: DirectConsole
) -> None:
    """And without an error in the browser's console: nothing went wrong."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(route: Route) -> None:
        begun.set()
        await may_end.wait()
        await route.continue_()

    async with open_tab(browser) as tab:
        page = tab.page
        await page.goto(f"{sample.url}/approvals")
        await page.evaluate("window.plans = 0; document.addEventListener('htmx:config:request', () => plans++)")
        await page.route("**/actions/approve/dry-run", slow, times=1)
        await page.locator("[data-choose]").first.check()
        await begun.wait()
        await page.fill("#approvals input[name=why]", "new rack")
        await page.locator("#approvals input[name=why]").blur()
        await seen(page, "plans === 2")
        may_end.set()
        await expect(page.locator("#plan code")).to_contain_text("new rack")
        assert tab.errors == []


_LONGEST_TASK: Final = """() => new Promise(resolve => {
  new PerformanceObserver(list => resolve(Math.max(...list.getEntries().map(entry => entry.duration))))
    .observe({type: 'longtask', buffered: true});
  setTimeout(() => resolve(0), 300);
})"""


def _with_faults(fleet: Fleet, count: int, seed: int) -> Fleet:
    """The fleet after `count` cards have failed or were mended."""
    cards = dict(fleet.cards)
    names = list(cards)
    step = len(names) // count
    for name in names[seed::step][:count]:
        card = cards[name]
        mended = card.status.state is DeviceState.FAULTED
        state = DeviceState.ASSIGNED if mended else DeviceState.FAULTED
        cards[name] = msgspec.structs.replace(card, status=msgspec.structs.replace(card.status, state=state))
    return msgspec.structs.replace(fleet, cards=cards)
