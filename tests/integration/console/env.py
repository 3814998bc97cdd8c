"""A console in this process, people with tokens of the cluster, and browsers that are plain HTTP clients."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import msgspec

from gpu_control_plane.console.fleet_caches import FleetCaches
from gpu_control_plane.console.page import Page
from gpu_control_plane.console.pages import PAGES
from gpu_control_plane.console.server import Console
from gpu_control_plane.console.settings import ConsoleSettings
from gpu_control_plane.kube import Client, Object, Resource, Runtime
from integration.conftest import Namespace
from integration.rbac import ClusterRole, ClusterRoleBinding, RoleBinding, ServiceAccount
from integration.running import running
from waiting import until

GPU = "gpu.deckhouse.io"


class _TokenStatus(msgspec.Struct, frozen=True):
    token: str = ""


class TokenRequest(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "TokenRequest", "serviceaccounts")
    status: _TokenStatus = _TokenStatus()


class PersonWithToken(msgspec.Struct, frozen=True):
    """Somebody who has a token: a ServiceAccount, since no other token needs anything beside the API server."""

    name: str
    token: str

    @property
    def user(self) -> str:
        return f"system:serviceaccount:default:{self.name}"

    @property
    def header(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


async def person(
    admin: Client, rules: Sequence[dict[str, object]] = (), *, namespaces: Sequence[str] = (), seconds: int = 3600
) -> PersonWithToken:
    """A new person with these rights, in these namespaces or in all."""
    name = f"person-{secrets.token_hex(3)}"
    await admin.create(ServiceAccount, {"metadata": {"name": name}}, "default")
    if rules:
        await admin.create(ClusterRole, {"metadata": {"name": name}, "rules": list(rules)})
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        for namespace in namespaces:
            await admin.create(RoleBinding, binding, namespace)
        if not namespaces:
            await admin.create(ClusterRoleBinding, binding)
    return PersonWithToken(name, await token_of(admin, name, seconds))


async def token_of(admin: Client, name: str, seconds: int = 3600) -> str:
    from gpu_control_plane.kube.transport import Call  # noqa: PLC0415

    answer = await admin.transport.send(
        Call(
            method="POST",
            path=f"/api/v1/namespaces/default/serviceaccounts/{name}/token",
            verb="create",
            resource="serviceaccounts",
            body=msgspec.json.encode({"spec": {"expirationSeconds": seconds}}),
        )
    )
    return msgspec.json.decode(answer, type=TokenRequest).status.token


READ_FLEET: list[dict[str, object]] = [
    {"apiGroups": [GPU], "resources": ["gpudevices", "gpunodestates", "gpupools"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
]
READ_PODS: list[dict[str, object]] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
ALL: list[dict[str, object]] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


class RunningConsole(msgspec.Struct, frozen=True):
    console: Console
    runtime: Runtime
    url: str

    @property
    def caches(self) -> FleetCaches:
        caches: FleetCaches = self.console.app.state.caches
        return caches

    def value(self, metric: str, **labels: str) -> float:
        return self.runtime.metrics.registry.get_sample_value(metric, labels) or 0.0

    async def ask(self, path: str, who: PersonWithToken, *, json: object = None, status: int = 200) -> dict[str, Any]:
        """What the API answers to a program of somebody."""
        method = "GET" if json is None else "POST"
        async with (
            self.program() as program,
            program.request(method, path, json=json, headers=who.header) as answer,
        ):
            assert answer.status == status, await answer.text()
            found: dict[str, Any] = await answer.json()
            return found

    @asynccontextmanager
    async def program(self) -> AsyncIterator[aiohttp.ClientSession]:
        """A program that is no browser: without cookies and without the headers of one."""
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(self.url, cookie_jar=jar, headers={"Accept": "application/json"}) as session:
            yield session

    @asynccontextmanager
    async def browser(self, token: str | None = None) -> AsyncIterator[aiohttp.ClientSession]:
        """A browser of somebody, signed in if there is a token. It sends what browsers send."""
        headers = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html"}
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(self.url, headers=headers, cookie_jar=jar) as session:
            if token is not None:
                async with session.post("/sign-in/token", data={"token": token}, allow_redirects=False) as answer:
                    assert answer.status == 303, await answer.text()
            yield session


@asynccontextmanager
async def running_console(
    kubeconfig: Path, pages: Sequence[Page] = PAGES, **settings: Any
) -> AsyncIterator[RunningConsole]:
    """A console on a free port of loopback, with its caches complete."""
    runtime = Runtime(
        "gpu-console", kubeconfig=kubeconfig, elect=False, one_of_many=False, status_port=0, status_host="127.0.0.1"
    )
    console = Console(runtime, ConsoleSettings(**{"port": 0, **settings}), pages)
    runtime.service(console.serve)
    async with running(runtime) as task:
        await until(lambda: task.done() or (console.port and console.ready), within=60)
        assert not task.done(), task
        yield RunningConsole(console, runtime, f"http://127.0.0.1:{console.port}")


async def new_namespace(admin: Client) -> str:
    return (await admin.create(Namespace, {"metadata": {"generateName": "team-"}})).name


async def next_message(content: aiohttp.StreamReader, within: float = 10.0) -> str:
    """The next message of a stream that is no ping."""
    async with asyncio.timeout(within):
        while True:
            message = (await content.readuntil(b"\n\n")).decode()
            if not message.startswith(":"):
                return message
