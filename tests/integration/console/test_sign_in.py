"""Who gets in, and who does not."""

import io
import ssl
import stat
from pathlib import Path

import aiohttp
from starlette.routing import Route

from gpu_control_plane.console.gate import OPEN_PREFIXES
from gpu_control_plane.console.headers import CONTENT_SECURITY_POLICY
from gpu_control_plane.kube import Client
from gpu_control_plane.local import Cluster
from gpu_control_plane.local.certificates import Authority
from integration.console.env import ALL, person, running_console


async def test_a_token_of_the_cluster_opens_the_console(cluster: Cluster, client: Client) -> None:
    admin = await person(client, ALL)
    async with running_console(cluster.kubeconfig) as console, console.browser(admin.token) as browser:
        async with browser.get("/") as page:
            text = await page.text()
            assert page.status == 200, text
            assert admin.user in text
            assert page.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
            assert page.headers["Cache-Control"] == "no-store"
        async with browser.post("/sign-out", allow_redirects=False) as out:
            assert out.status == 303
        async with browser.get("/", allow_redirects=False) as page:
            assert page.status == 303
            assert page.headers["Location"] == "/sign-in?next=%2F"


async def test_nothing_is_readable_without_a_sign_in(cluster: Cluster) -> None:
    async with running_console(cluster.kubeconfig) as console, console.browser() as browser:
        routes = [route for route in console.console.app.routes if isinstance(route, Route)]
        assert len(routes) == len(console.console.app.routes)
        closed = [route.path for route in routes if not route.path.startswith(OPEN_PREFIXES)]
        assert {"/", "/stream", "/sign-out"} <= set(closed)
        for path in [*closed, "/no-such-page", "/static", "/api/v1/no-such-thing"]:
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
                for headers in (
                    {"Accept": "application/json"},
                    {"Accept": "text/event-stream"},
                    {"Accept": "application/json", "Authorization": "Bearer abc"},
                    {"Accept": "application/json", "Cookie": "gpu-session=abc"},
                ):
                    async with browser.request(method, path, headers=headers, allow_redirects=False) as answer:
                        assert answer.status in (401, 429), (method, path, headers)
        assert console.value("gpu_console_refusals_total", reason="NotSignedIn") > 0


async def test_guessing_is_slowed_down(cluster: Cluster) -> None:
    async with running_console(cluster.kubeconfig) as console, console.browser() as browser:
        answers = []
        for number in range(15):
            async with browser.post("/sign-in/token", data={"token": f"guess-{number}"}) as answer:
                answers.append(answer.status)
        assert answers[:10] == [401] * 10
        assert 429 in answers


async def test_guessed_tokens_of_programs_do_not_reach_the_api_server_for_ever(cluster: Cluster) -> None:
    async with running_console(cluster.kubeconfig) as console, console.program() as program:
        answers = []
        for number in range(150):
            async with program.get("/api/v1/me", headers={"Authorization": f"Bearer guess-{number}"}) as answer:
                answers.append(answer.status)
        assert set(answers) == {401, 429}
        asked = console.value("gpu_console_reviews_total", kind="token", answer="no")
        assert asked == answers.count(401) < 120


async def test_a_body_is_not_larger_than_a_form(cluster: Cluster) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    async with (
        running_console(cluster.kubeconfig) as console,
        console.browser() as browser,
        browser.post("/sign-in/token", data=io.BytesIO(b"token=" + b"x" * 2_000_000), headers=form) as answer,
    ):
        assert answer.status == 400


async def test_a_link_signs_its_owner_in_once(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "address"
    async with running_console(cluster.kubeconfig, signed_in_as_kubeconfig=True, address_file=file) as console:
        link = file.read_text().strip()
        assert link.startswith(f"{console.url}/sign-in/link?token=")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        async with console.browser() as browser, browser.get(link) as page:
            assert page.status == 200
            assert page.url.path == "/"
            assert "kubernetes-admin" in await page.text() or "admin" in await page.text()
        async with console.browser() as other:
            async with other.get(link) as page:
                assert page.status == 401
            async with other.get(file.read_text().strip()) as page:
                assert page.status == 200


async def test_loopback_answers_under_no_other_name(cluster: Cluster) -> None:
    async with (
        running_console(cluster.kubeconfig) as console,
        console.browser() as browser,
        browser.get("/sign-in", headers={"Host": "evil.example"}) as answer,
    ):
        assert answer.status == 400


async def test_over_tls_the_cookie_stays_with_this_host(cluster: Cluster, client: Client, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    pair = authority.server("console", ["127.0.0.1"])
    trust = ssl.create_default_context(cafile=str(authority.pair.certificate))
    admin = await person(client, ALL)
    async with (
        running_console(cluster.kubeconfig, certificate=pair.certificate, key=pair.key) as console,
        aiohttp.ClientSession(f"https://127.0.0.1:{console.console.port}") as browser,
        browser.post(
            "/sign-in/token",
            data={"token": admin.token},
            headers={"Origin": f"https://127.0.0.1:{console.console.port}"},
            ssl=trust,
            allow_redirects=False,
        ) as answer,
    ):
        assert answer.status == 303
        cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith("__Host-gpu-session=")
        assert all(word in cookie for word in ("HttpOnly", "Secure", "SameSite=lax", "Path=/"))
        assert admin.token not in cookie
        assert answer.headers["Strict-Transport-Security"]


async def test_static_files_have_their_content_in_the_url(cluster: Cluster) -> None:
    async with running_console(cluster.kubeconfig) as console, console.browser() as browser:
        async with browser.get("/sign-in") as page:
            html = await page.text()
        path = html.split('src="')[1].split('"')[0]
        async with browser.get(path) as script:
            assert script.status == 200
            assert "immutable" in script.headers["Cache-Control"]
            assert script.headers["X-Content-Type-Options"] == "nosniff"
        async with browser.get(path.replace("/static/", "/static/0")) as script:
            assert script.status == 404
