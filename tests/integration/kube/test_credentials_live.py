"""Every way to authenticate, against a real API server: its `SelfSubjectReview` names the user."""

import asyncio
import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
import yaml

from client_certificates import client_certificate
from gpu_control_plane.kube import Client, Config, Object, Resource, load_config
from gpu_control_plane.kube.certificates import KeyPair
from gpu_control_plane.kube.errors import Forbidden, Unauthorized
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.local import Cluster
from integration.rbac import ServiceAccount
from kubeconfigs import written
from proxies import ConnectProxy


class UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class ReviewStatus(msgspec.Struct, frozen=True, rename="camel"):
    user_info: UserInfo = UserInfo()


class SelfSubjectReview(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(
        "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
    )

    status: ReviewStatus = ReviewStatus()


class Secret(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Secret", "secrets")


async def who(config: Config) -> UserInfo:
    async with Client(config) as client:
        return await who_is(client)


async def who_is(client: Client) -> UserInfo:
    return (await client.create(SelfSubjectReview, {})).status.user_info


def kubeconfig(cluster: Cluster, user: Mapping[str, object] | None = None, **fields: object) -> dict[str, object]:
    """The administrator's kubeconfig with another user and other fields of the cluster."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    document["clusters"][0]["cluster"] |= {key.replace("_", "-"): value for key, value in fields.items()}
    if user is not None:
        document["users"][0]["user"] = user
    return dict(document)


def administrator(cluster: Cluster) -> dict[str, object]:
    return dict(yaml.safe_load(cluster.kubeconfig.read_text())["users"][0]["user"])


def person(cluster: Cluster, name: str, *groups: str) -> KeyPair:
    """A client certificate of the cluster's own authority."""
    files = cluster.plan.identities.authority
    return client_certificate(KeyPair(files.certificate.read_bytes(), files.key.read_bytes()), name, groups)


class Robot:
    """A service account whose tokens can be revoked one by one: each is bound to a Secret of its own."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.username = f"system:serviceaccount:{namespace}:robot"
        self._client = client
        self._namespace = namespace

    async def create(self) -> None:
        await self._client.create(ServiceAccount, {"metadata": {"name": "robot"}}, self._namespace)

    async def token(self, name: str) -> str:
        secret = await self._client.create(Secret, {"metadata": {"name": name}}, self._namespace)
        bound = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": secret.metadata.uid}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600, "boundObjectRef": bound},
        }
        path = ServiceAccount.resource.path(self._namespace, "robot", "token")
        call = Call(method="POST", path=path, verb="create", resource="tokens", body=msgspec.json.encode(body))
        return str(json.loads(await self._client.transport.send(call))["status"]["token"])

    async def revoke(self, name: str) -> None:
        await self._client.delete(Secret, name, self._namespace)


@pytest.fixture
async def robot(client: Client, namespace: str) -> Robot:
    robot = Robot(client, namespace)
    await robot.create()
    return robot


async def refused(config: Config) -> None:
    """Wait until the API server, which remembers tokens for ten seconds, refuses what this configuration shows."""
    access = await config.access()
    async with Client(config) as client:
        async with asyncio.timeout(90):
            while True:
                try:
                    await who_is(client)
                except Unauthorized:
                    return
                assert await config.access() is access
                await asyncio.sleep(0.2)


def frozen() -> float:
    """A clock that stands still: nothing is read again because of its age."""
    return 1_800_000_000.0


async def test_the_administrator_is_let_in_by_certificate(api_server: Cluster) -> None:
    assert "system:masters" in (await who(load_config(api_server.kubeconfig))).groups


async def test_a_client_certificate_from_data(api_server: Cluster, tmp_path: Path) -> None:
    ann = person(api_server, "ann", "dev", "ops")
    user = {
        "client-certificate-data": base64.b64encode(ann.certificate).decode(),
        "client-key-data": base64.b64encode(ann.key).decode(),
    }
    seen = await who(load_config(written(tmp_path, kubeconfig(api_server, user))))
    assert (seen.username, set(seen.groups)) == ("ann", {"dev", "ops", "system:authenticated"})


async def test_a_client_certificate_that_rotates_on_disk(api_server: Cluster, tmp_path: Path) -> None:
    hours = 0
    file = tmp_path / "client.pem"
    ann, bob = person(api_server, "ann"), person(api_server, "bob")
    file.write_bytes(ann.certificate + ann.key)
    user = {"client-certificate": "client.pem", "client-key": "client.pem"}
    path = written(tmp_path, kubeconfig(api_server, user))
    async with Client(load_config(path, now=lambda: 1_800_000_000.0 + hours * 3600)) as client:
        assert (await who_is(client)).username == "ann"
        file.write_bytes(bob.certificate + bob.key)
        hours = 1
        assert (await who_is(client)).username == "bob"


async def test_a_pods_own_configuration(api_server: Cluster, robot: Robot, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(await robot.token("first"))
    (tmp_path / "ca.crt").write_bytes(api_server.authority.read_bytes())
    host, _, port = api_server.server.removeprefix("https://").rpartition(":")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    config = load_config(environ=environ, service_account=tmp_path, home=tmp_path)
    assert (await who(config)).username == robot.username


async def test_a_wrong_token_is_refused_with_the_servers_words(api_server: Cluster, tmp_path: Path) -> None:
    with pytest.raises(Unauthorized):
        await who(load_config(written(tmp_path, kubeconfig(api_server, {"token": "nonsense"}))))


def plugin(folder: Path, token: Path, runs: Path) -> dict[str, object]:
    """An exec plugin that prints the token of the moment and leaves a mark each time it runs."""
    path = folder / "plugin"
    path.write_text(
        f"#!{sys.executable}\n"
        "import json\n"
        f"open({str(runs)!r}, 'a').write('x')\n"
        f"status = {{'token': open({str(token)!r}).read()}}\n"
        "version = 'client.authentication.k8s.io/v1'\n"
        "print(json.dumps({'apiVersion': version, 'kind': 'ExecCredential', 'status': status}))\n"
    )
    path.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": "./plugin", "interactiveMode": "Never"}}


async def test_a_revoked_token_is_replaced_by_what_file_and_plugin_give_by_then(
    api_server: Cluster, robot: Robot, tmp_path: Path
) -> None:
    token, runs = tmp_path / "token", tmp_path / "runs"
    token.write_text(await robot.token("first"))
    from_file = written(tmp_path, kubeconfig(api_server, {"tokenFile": "token"}), "from-file")
    from_plugin = written(tmp_path, kubeconfig(api_server, plugin(tmp_path, token, runs)), "from-plugin")
    async with (
        Client(load_config(from_file, now=frozen)) as file_client,
        Client(load_config(from_plugin)) as plugin_client,
    ):
        assert (await who_is(file_client)).username == robot.username
        assert (await who_is(plugin_client)).username == robot.username
        await robot.revoke("first")
        await refused(load_config(from_file, now=frozen))
        token.write_text(await robot.token("second"))
        seen = await asyncio.gather(*(who_is(client) for client in (file_client, plugin_client) * 10))
    assert {user.username for user in seen} == {robot.username}
    assert runs.read_text() == "xx", "the plugin ran once at first and once for all who were refused"


async def test_a_plugin_that_gives_a_client_certificate(api_server: Cluster, tmp_path: Path) -> None:
    ann = person(api_server, "ann")
    status = {"clientCertificateData": ann.certificate.decode(), "clientKeyData": ann.key.decode()}
    version = "client.authentication.k8s.io/v1beta1"
    answer = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    (tmp_path / "answer").write_text(answer)
    command = {"apiVersion": version, "command": "cat", "args": [str(tmp_path / "answer")]}
    assert (await who(load_config(written(tmp_path, kubeconfig(api_server, {"exec": command}))))).username == "ann"


async def test_impersonation(api_server: Cluster, tmp_path: Path) -> None:
    user = administrator(api_server) | {
        "as": "bob",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"example.org/scope": ["a", "b"]},
    }
    seen = await who(load_config(written(tmp_path, kubeconfig(api_server, user))))
    assert (seen.username, set(seen.groups)) == ("bob", {"dev", "ops", "system:authenticated"})
    assert seen.extra == {"example.org/scope": ("a", "b")}


async def test_impersonation_needs_a_right(api_server: Cluster, robot: Robot, tmp_path: Path) -> None:
    user = {"token": await robot.token("first"), "as": "bob"}
    with pytest.raises(Forbidden, match="cannot impersonate"):
        await who(load_config(written(tmp_path, kubeconfig(api_server, user))))


async def test_through_a_proxy(api_server: Cluster, tmp_path: Path) -> None:
    async with ConnectProxy(credentials="me:secret") as proxy:
        url = f"http://me:secret@127.0.0.1:{proxy.port}"
        document = kubeconfig(api_server, proxy_url=url)
        assert (await who(load_config(written(tmp_path, document)))).username
        assert proxy.tunnels == [api_server.server.removeprefix("https://")]


async def test_under_another_name(api_server: Cluster, tmp_path: Path) -> None:
    document = kubeconfig(api_server, tls_server_name="kubernetes.default.svc")
    assert (await who(load_config(written(tmp_path, document)))).username
