"""TLS as a client sees it, over real sockets on loopback: whom it believes, what it shows, through which proxy."""

import base64
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from client_certificates import client_certificate
from gpu_control_plane.kube.certificates import KeyPair, issue, new_authority
from gpu_control_plane.kube.config import Config, load_config
from gpu_control_plane.kube.tls import load_certificate, server_context
from kubeconfigs import kubeconfig, written
from proxies import ConnectProxy

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
AUTHORITY = new_authority("cluster", now=NOW, valid_for=DAY)
OTHER = new_authority("other", now=NOW, valid_for=DAY)


def serving(authority: KeyPair, *names: str, clients: KeyPair | None = None) -> ssl.SSLContext:
    context = server_context(clients.certificate if clients else None)
    pair = issue(authority, names, now=NOW, valid_for=DAY)
    load_certificate(context, pair.certificate, pair.key, "the test's certificate")
    return context


@asynccontextmanager
async def server(tls: ssl.SSLContext) -> AsyncIterator[str]:
    """Answers with the common name of the client's certificate; yields its URL."""

    async def who(request: web.Request) -> web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        names = [value for part in peer.get("subject", ()) for key, value in part if key == "commonName"]
        return web.Response(text=names[0] if names else "nobody")

    app = web.Application()
    app.router.add_get("/", who)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def config(
    folder: Path, url: str, fields: Mapping[str, object] | None = None, *, user: Mapping[str, object] | None = None
) -> Config:
    trusted = {"certificate-authority-data": base64.b64encode(AUTHORITY.certificate).decode()}
    document = kubeconfig(cluster={"server": url, **trusted, **(fields or {})}, user=user or {"token": "t"})
    return load_config(written(folder, document), environ={})


async def ask(config: Config) -> str:
    """One request on a connection of its own."""
    access = await config.access()
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            config.server,
            headers=access.headers,
            ssl=access.ssl,
            proxy=config.proxy,
            server_hostname=config.tls_server_name,
        ) as response,
    ):
        return await response.text()


async def test_a_server_of_the_clusters_authority_is_believed(tmp_path: Path) -> None:
    async with server(serving(AUTHORITY, "127.0.0.1")) as url:
        assert await ask(config(tmp_path, url)) == "nobody"


async def test_a_server_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    async with server(serving(OTHER, "127.0.0.1")) as url:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(config(tmp_path, url))


async def test_a_server_of_another_name_is_not_believed(tmp_path: Path) -> None:
    async with server(serving(AUTHORITY, "elsewhere.example")) as url:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(config(tmp_path, url))


async def test_the_name_to_verify_may_be_given(tmp_path: Path) -> None:
    async with server(serving(AUTHORITY, "elsewhere.example")) as url:
        assert await ask(config(tmp_path, url, {"tls-server-name": "elsewhere.example"})) == "nobody"


async def test_without_verification_anything_is_believed(tmp_path: Path) -> None:
    async with server(serving(OTHER, "elsewhere.example")) as url:
        fields = {"certificate-authority-data": None, "insecure-skip-tls-verify": True}
        assert await ask(config(tmp_path, url, fields)) == "nobody"


async def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    ann = client_certificate(AUTHORITY, "ann")
    user: dict[str, object] = {
        "client-certificate-data": base64.b64encode(ann.certificate).decode(),
        "client-key-data": base64.b64encode(ann.key).decode(),
    }
    async with server(serving(AUTHORITY, "127.0.0.1", clients=AUTHORITY)) as url:
        assert await ask(config(tmp_path, url, user=user)) == "ann"


async def test_certificates_load_where_there_are_no_files_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    async with server(serving(AUTHORITY, "127.0.0.1")) as url:
        assert await ask(config(tmp_path, url)) == "nobody"


class Hours:
    """A clock that a test moves by hours, far beyond the time after which files are read again."""

    def __init__(self) -> None:
        self.passed = 0

    def __call__(self) -> float:
        return 1_000_000.0 + self.passed * 3600


def with_files(folder: Path, url: str, clock: Hours) -> Config:
    cluster = {"server": url, "certificate-authority": "ca.crt"}
    user = {"client-certificate": "client.pem", "client-key": "client.pem"}
    return load_config(written(folder, kubeconfig(cluster=cluster, user=user)), environ={}, now=clock)


def put(folder: Path, authority: KeyPair, client: KeyPair) -> None:
    (folder / "ca.crt").write_bytes(authority.certificate)
    (folder / "client.pem").write_bytes(client.certificate + client.key)


async def test_a_client_certificate_that_rotates_on_disk_is_followed(tmp_path: Path) -> None:
    clock = Hours()
    put(tmp_path, AUTHORITY, client_certificate(AUTHORITY, "ann"))
    async with server(serving(AUTHORITY, "127.0.0.1", clients=AUTHORITY)) as url:
        following = with_files(tmp_path, url, clock)
        assert await ask(following) == "ann"
        put(tmp_path, AUTHORITY, client_certificate(AUTHORITY, "ann-renewed"))
        clock.passed = 1
        assert await ask(following) == "ann-renewed"


async def test_files_in_the_middle_of_a_change_keep_the_old_certificate(tmp_path: Path) -> None:
    clock = Hours()
    ann, bob = client_certificate(AUTHORITY, "ann"), client_certificate(AUTHORITY, "bob")
    put(tmp_path, AUTHORITY, ann)
    async with server(serving(AUTHORITY, "127.0.0.1", clients=AUTHORITY)) as url:
        following = with_files(tmp_path, url, clock)
        put(tmp_path, AUTHORITY, KeyPair(bob.certificate, ann.key))
        clock.passed = 1
        assert await ask(following) == "ann"
        put(tmp_path, AUTHORITY, bob)
        clock.passed = 2
        assert await ask(following) == "bob"


async def test_an_authority_that_rotates_on_disk_is_followed(tmp_path: Path) -> None:
    clock = Hours()
    ann = client_certificate(AUTHORITY, "ann")
    put(tmp_path, AUTHORITY, ann)
    async with server(serving(OTHER, "127.0.0.1", clients=AUTHORITY)) as url:
        following = with_files(tmp_path, url, clock)
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(following)
        put(tmp_path, OTHER, ann)
        clock.passed = 1
        assert await ask(following) == "ann"


async def test_the_tls_context_is_kept_while_certificates_are_the_same(tmp_path: Path) -> None:
    clock = Hours()
    put(tmp_path, AUTHORITY, client_certificate(AUTHORITY, "ann"))
    following = with_files(tmp_path, "https://127.0.0.1:1", clock)
    before = await following.access()
    clock.passed = 1
    assert await following.access() is before


async def test_a_proxy_is_tunnelled_through(tmp_path: Path) -> None:
    async with server(serving(AUTHORITY, "127.0.0.1")) as url, ConnectProxy() as proxy:
        assert await ask(config(tmp_path, url, {"proxy-url": f"http://127.0.0.1:{proxy.port}"})) == "nobody"
        assert proxy.tunnels == [url.removeprefix("https://")]


async def test_a_proxy_may_want_a_password(tmp_path: Path) -> None:
    async with server(serving(AUTHORITY, "127.0.0.1")) as url, ConnectProxy(credentials="me:secret") as proxy:
        assert await ask(config(tmp_path, url, {"proxy-url": f"http://me:secret@127.0.0.1:{proxy.port}"})) == "nobody"
        with pytest.raises(aiohttp.ClientHttpProxyError):
            await ask(config(tmp_path, url, {"proxy-url": f"http://127.0.0.1:{proxy.port}"}))


async def test_an_https_proxy_is_believed_by_the_systems_authorities_and_the_server_by_the_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "system.crt"
    system.write_bytes(OTHER.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(system))
    tls = serving(OTHER, "localhost")
    async with server(serving(AUTHORITY, "127.0.0.1")) as url, ConnectProxy(tls=tls) as proxy:
        assert await ask(config(tmp_path, url, {"proxy-url": f"https://localhost:{proxy.port}"})) == "nobody"
        assert proxy.tunnels == [url.removeprefix("https://")]


async def test_an_https_proxy_of_the_clusters_authority_is_not_believed(tmp_path: Path) -> None:
    tls = serving(AUTHORITY, "localhost")
    async with server(serving(AUTHORITY, "127.0.0.1")) as url, ConnectProxy(tls=tls) as proxy:
        with pytest.raises(aiohttp.ClientError):
            await ask(config(tmp_path, url, {"proxy-url": f"https://localhost:{proxy.port}"}))
        assert proxy.tunnels == []
