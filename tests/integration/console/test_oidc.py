"""Signing in by a real identity provider, whose tokens the API server takes; and where it does not take them."""

import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.console.identity import Person
from gpu_control_plane.console.page import POST, Page
from gpu_control_plane.console.sign_in.oidc import SCOPES, OIDCSettings
from gpu_control_plane.console.sign_in.routes import CALLBACK
from gpu_control_plane.console.sign_in.sessions import Session
from gpu_control_plane.console.viewer import impersonating_client
from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.kube.errors import Forbidden
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.ports import free_port
from integration.conftest import CONTROL_PLANE, Namespace
from integration.console.dex import ALICE, CLIENT, PASSWORD, SECRET, Dex, running_dex
from integration.console.env import READ_FLEET, RunningConsole, person, running_console
from integration.console.objects import a_card
from integration.rbac import ClusterRole, ClusterRoleBinding

NAVIGATION = {
    "Sec-Fetch-Site": "cross-site",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
    "Accept": "text/html",
}
"""What browsers send when a person is sent from one site to another."""


class Provided(msgspec.Struct, frozen=True):
    dex: Dex
    cluster: Cluster
    port: int
    """Where the console has to listen: the provider knows its address."""


async def _who(request: Request) -> Response:
    viewer = request.state.viewer
    return PlainTextResponse(f"{viewer.name} {' '.join(viewer.groups)}")


async def _approve(request: Request) -> Response:
    body = {"metadata": {"annotations": {Annotation.ASSIGNMENT: "training"}}}
    await request.state.viewer.client.patch(GPUDevice, request.path_params["name"], body)
    return PlainTextResponse("done")


PAGES = (Page(path="/", show=_who), Page(path="/test/approve/{name}", methods=POST, show=_approve))


@pytest.fixture(scope="module")
def provided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provided]:
    folder = tmp_path_factory.mktemp("dex")
    port = free_port()
    with running_dex(folder, [f"http://127.0.0.1:{port}{CALLBACK}"]) as dex:
        settings = Settings(components=CONTROL_PLANE, flags={Component.APISERVER: dex.api_server_flags()})
        with Cluster(folder / "cluster", ensure_binaries(CONTROL_PLANE), settings) as cluster:
            install_crds(cluster.kubeconfig)
            yield Provided(dex, cluster, port)


@pytest.fixture
async def admin(provided: Provided) -> AsyncIterator[Client]:
    async with Client(load_config(provided.cluster.kubeconfig)) as client:
        yield client


@asynccontextmanager
async def console_of(
    provided: Provided, kubeconfig: Path | None = None, **settings: Any
) -> AsyncIterator[RunningConsole]:
    public = f"http://127.0.0.1:{provided.port}"
    oidc = OIDCSettings(
        issuer=provided.dex.issuer,
        client_id=CLIENT,
        client_secret=SECRET,
        redirect_url=f"{public}{CALLBACK}",
        scopes=(*SCOPES, *(() if settings.get("impersonate") else ("audience:server:client_id:kubernetes",))),
        authority=provided.dex.authority,
    )
    own = kubeconfig or provided.cluster.kubeconfig
    async with running_console(own, PAGES, port=provided.port, public_url=public, oidc=oidc, **settings) as console:
        yield console


@asynccontextmanager
async def browser_of(provided: Provided, console: RunningConsole) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cafile=str(provided.dex.authority))
    async with aiohttp.ClientSession(
        console.url,
        connector=aiohttp.TCPConnector(ssl=context),
        cookie_jar=aiohttp.CookieJar(unsafe=True),
        headers=NAVIGATION,
    ) as session:
        yield session


async def sign_in(browser: aiohttp.ClientSession) -> aiohttp.ClientResponse:
    """As Alice does: to the provider, name and password, and back."""
    async with browser.get("/sign-in/oidc", params={"next": "/?from=dex"}) as form:
        html = await form.text()
        assert form.status == 200, html
        action = unescape(re.search(r'<form[^>]*action="([^"]+)"', html)[1])  # type: ignore[index]
        url = form.url.join(form.url.with_path("/")).join(type(form.url)(action, encoded=True))
    return await browser.post(url, data={"login": ALICE, "password": PASSWORD})


def _session(console: RunningConsole) -> Session:
    (session,) = console.console.app.state.people.sessions._held.values()
    assert isinstance(session, Session)
    return session


async def test_alice_signs_in_by_dex_and_is_who_the_cluster_says(provided: Provided, admin: Client) -> None:
    binding = {
        "metadata": {"name": "dex-admins"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dex:gpu-admins"}],
    }
    await admin.create(ClusterRoleBinding, binding)
    card = await a_card(admin)
    async with console_of(provided) as console, browser_of(provided, console) as browser:
        async with await sign_in(browser) as page:
            assert page.status == 200
            assert str(page.url) == f"{console.url}/?from=dex"
            assert await page.text() == f"dex:{ALICE} dex:gpu-admins system:authenticated"
        cookies = {cookie.key: cookie.value for cookie in browser.cookie_jar}
        assert set(cookies) == {"gpu-session"}
        session = _session(console)
        assert session.token is not None
        assert session.token not in cookies["gpu-session"]

        # She writes with her own token.
        async with browser.post(f"/test/approve/{card.name}", headers={"Sec-Fetch-Site": "same-origin"}) as answer:
            assert answer.status == 200, await answer.text()

        # The token is refreshed before it expires.
        before, session.token_expires = session.token, 0.0
        async with browser.get("/") as page:
            assert page.status == 200, await page.text()
        assert session.token != before
        assert session.token_expires is not None
        assert session.token_expires > 0

        # A session whose provider does not know it any more ends.
        session.token_expires, session.refresh_token = 0.0, "forged"
        async with browser.get("/", allow_redirects=False) as page:
            assert page.status == 303
        assert session.ended.is_set()


async def test_a_flow_that_was_not_begun_here_is_refused(provided: Provided) -> None:
    async with console_of(provided) as console, browser_of(provided, console) as browser:
        for query in ({"code": "x", "state": "y"}, {"code": "x"}, {}):
            async with browser.get(CALLBACK, params=query) as page:
                assert page.status == 401
        # Begun by an attacker, finished by a victim.
        async with (
            browser_of(provided, console) as attacker,
            attacker.get("/sign-in/oidc", allow_redirects=False) as begun,
        ):
            state = re.search(r"state=([^&]+)", begun.headers["Location"])[1]  # type: ignore[index]
        async with browser.get(CALLBACK, params={"code": "x", "state": state}) as page:
            assert page.status == 401
            assert "another browser" in await page.text()


def kubeconfig_with(cluster: Cluster, token: str, file: Path) -> Path:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    file.write_text(yaml.safe_dump(config))
    return file


RIGHTS: list[dict[str, object]] = [
    *READ_FLEET,
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["list", "watch"]},
    {"apiGroups": ["nvidia.com"], "resources": ["clusterpolicies", "nvidiadrivers"], "verbs": ["list", "watch"]},
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    {"apiGroups": ["authentication.k8s.io"], "resources": ["users", "groups"], "verbs": ["impersonate:user-info"]},
    {
        "apiGroups": ["gpu.deckhouse.io"],
        "resources": ["gpudevices", "gpupools"],
        "verbs": ["impersonate-on:user-info:get", "impersonate-on:user-info:patch"],
    },
]
"""As the chart has them, with impersonation."""


async def test_without_a_token_for_the_cluster_people_are_impersonated_for_our_kinds_alone(
    provided: Provided, admin: Client, tmp_path: Path
) -> None:
    us = await person(admin, RIGHTS)
    own = kubeconfig_with(provided.cluster, us.token, tmp_path / "console.kubeconfig")
    role = {
        "metadata": {"name": "sso-admins"},
        "rules": [
            {"apiGroups": ["gpu.deckhouse.io"], "resources": ["gpudevices"], "verbs": ["list", "patch"]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["*"]},
        ],
    }
    await admin.create(ClusterRole, role)
    binding = {
        "metadata": {"name": "sso-admins"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "sso-admins"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "sso:gpu-admins"}],
    }
    await admin.create(ClusterRoleBinding, binding)
    card = await a_card(admin)
    prefixes = {"impersonate": True, "user_prefix": "sso:", "groups_prefix": "sso:"}
    async with console_of(provided, own, **prefixes) as console, browser_of(provided, console) as browser:
        async with await sign_in(browser) as page:
            assert await page.text() == f"sso:{ALICE} sso:gpu-admins system:authenticated"
        async with browser.post(f"/test/approve/{card.name}", headers={"Sec-Fetch-Site": "same-origin"}) as answer:
            assert answer.status == 200, await answer.text()
        changed = await admin.get(GPUDevice, card.name)
        assert changed.metadata.annotations[Annotation.ASSIGNMENT] == "training"
    async with Client(load_config(own)) as client:
        # Alice may, and the console may not ask for it.
        alice = impersonating_client(client, Person(name=f"sso:{ALICE}", groups=("sso:gpu-admins",)))
        with pytest.raises(Forbidden, match="impersonate"):
            await alice.create(Namespace, {"metadata": {"name": "as-alice"}})
        # The console may ask, and Bob may not.
        bob = impersonating_client(client, Person(name="sso:bob@example.com"))
        with pytest.raises(Forbidden, match="bob"):
            await bob.patch(GPUDevice, card.name, {"metadata": {"annotations": {"a": "b"}}})
