"""Where a configuration comes from and what it says. Nothing here touches a network."""

import base64
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpu_control_plane.kube.certificates import KeyPair, new_authority
from gpu_control_plane.kube.config import Config, Impersonation, load_config
from gpu_control_plane.kube.errors import ConfigError
from kubeconfigs import SERVER, kubeconfig, written

AUTHORITY = new_authority("test", now=datetime.now(UTC), valid_for=timedelta(days=1))


def load(
    path: Path | None, folder: Path, environ: Mapping[str, str] | None = None, context: str | None = None
) -> Config:
    """Load as on a machine that has nothing but `folder`."""
    return load_config(
        path, context, environ=environ or {}, home=folder / "home", service_account=folder / "service-account"
    )


def service_account(folder: Path, authority: KeyPair = AUTHORITY) -> dict[str, str]:
    """The files of a pod, and its environment."""
    files = folder / "service-account"
    files.mkdir()
    (files / "token").write_text("pod-token\n")
    (files / "namespace").write_text("pod-namespace")
    (files / "ca.crt").write_bytes(authority.certificate)
    return {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def named(document: dict[str, object], server: str) -> dict[str, object]:
    return document | {"clusters": [{"name": "there", "cluster": {"server": server}}]}


def test_an_explicit_path_wins(tmp_path: Path) -> None:
    path = written(tmp_path, named(kubeconfig(), "https://explicit"))
    other = written(tmp_path, kubeconfig(), "other")
    assert load(path, tmp_path, {"KUBECONFIG": str(other)}).server == "https://explicit"


def test_the_environment_wins_over_the_pod(tmp_path: Path) -> None:
    path = written(tmp_path, kubeconfig())
    assert load(None, tmp_path, service_account(tmp_path) | {"KUBECONFIG": str(path)}).server == SERVER


async def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    config = load(None, tmp_path, service_account(tmp_path))
    access = await config.access()
    assert (config.server, config.namespace) == ("https://10.0.0.1:443", "pod-namespace")
    assert access.headers["Authorization"] == "Bearer pod-token"
    assert isinstance(access.ssl, ssl.SSLContext)
    assert len(access.ssl.get_ca_certs()) == 1


def test_a_pod_reaches_an_ipv6_server(tmp_path: Path) -> None:
    environ = service_account(tmp_path) | {"KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert load(None, tmp_path, environ).server == "https://[fd00::1]:443"


def test_the_home_folder_comes_last(tmp_path: Path) -> None:
    written(tmp_path / "home" / ".kube", kubeconfig())
    assert load(None, tmp_path).server == SERVER


def test_a_context_is_not_looked_for_in_a_pod(tmp_path: Path) -> None:
    written(tmp_path / "home" / ".kube", kubeconfig())
    assert load(None, tmp_path, service_account(tmp_path), context="here").server == SERVER


def test_of_several_files_the_first_to_name_something_wins(tmp_path: Path) -> None:
    first = written(tmp_path, {"current-context": "here", "users": [{"name": "me", "user": {"token": "first"}}]}, "a")
    second = written(tmp_path, kubeconfig(namespace="team"), "b")
    missing = tmp_path / "missing"
    config = load(None, tmp_path, {"KUBECONFIG": f"{first}::{missing}:{second}"})
    assert (config.server, config.namespace) == (SERVER, "team")


def test_a_context_is_chosen_by_name(tmp_path: Path) -> None:
    document = kubeconfig() | {
        "contexts": [
            {"name": "here", "context": {"cluster": "there", "user": "me"}},
            {"name": "elsewhere", "context": {"cluster": "there", "user": "me", "namespace": "chosen"}},
        ]
    }
    assert load(written(tmp_path, document), tmp_path, context="elsewhere").namespace == "chosen"


async def test_files_are_found_beside_the_kubeconfig(tmp_path: Path) -> None:
    document = kubeconfig(
        cluster={"server": SERVER, "certificate-authority": "pki/ca.crt"}, user={"tokenFile": "pki/token"}
    )
    path = written(tmp_path / "deep", document)
    written(tmp_path / "deep" / "pki", AUTHORITY.certificate.decode(), "ca.crt")
    written(tmp_path / "deep" / "pki", "beside", "token")
    access = await load(path, tmp_path).access()
    assert access.headers["Authorization"] == "Bearer beside"


@pytest.mark.parametrize(
    ("user", "headers"),
    [
        ({}, {}),
        ({"token": "abc"}, {"Authorization": "Bearer abc"}),
        ({"username": "ann", "password": "pw"}, {"Authorization": "Basic YW5uOnB3"}),
        ({"token": "abc", "as": "bob"}, {"Authorization": "Bearer abc", "Impersonate-User": "bob"}),
        ({"as": "bob", "as-uid": "7"}, {"Impersonate-User": "bob", "Impersonate-Uid": "7"}),
    ],
)
async def test_headers_authenticate_the_user(tmp_path: Path, user: dict[str, object], headers: dict[str, str]) -> None:
    access = await load(written(tmp_path, kubeconfig(user=user)), tmp_path).access()
    assert dict(access.headers) == headers


async def test_every_impersonated_group_and_extra_has_a_header(tmp_path: Path) -> None:
    user = {"as": "bob", "as-groups": ["dev", "ops"], "as-user-extra": {"acme/scope": ["a", "b"]}}
    access = await load(written(tmp_path, kubeconfig(user=user)), tmp_path).access()
    assert access.headers.getall("Impersonate-Group") == ["dev", "ops"]
    assert access.headers.getall("Impersonate-Extra-acme%2Fscope") == ["a", "b"]


async def test_who_is_acted_as_on_the_command_line_wins_over_the_kubeconfig(tmp_path: Path) -> None:
    user = {"token": "abc", "as": "bob", "as-groups": ["dev"], "as-user-extra": {"acme/scope": ["a"]}}
    path = written(tmp_path, kubeconfig(user=user))
    acting_as = Impersonation(user="eve", groups=("ops", "sre"), uid="7")
    access = await load_config(path, acting_as=acting_as, environ={}, home=tmp_path).access()
    assert sorted(access.headers.items()) == [
        ("Authorization", "Bearer abc"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Group", "sre"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-User", "eve"),
    ]


async def test_a_token_file_wins_over_a_token(tmp_path: Path) -> None:
    written(tmp_path, "from-file", "token")
    user = {"token": "given", "tokenFile": "token"}
    access = await load(written(tmp_path, kubeconfig(user=user)), tmp_path).access()
    assert access.headers["Authorization"] == "Bearer from-file"


async def test_what_is_given_wins_over_a_plugin(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "does-not-exist"}
    user = {"token": "given", "exec": plugin}
    access = await load(written(tmp_path, kubeconfig(user=user)), tmp_path).access()
    assert access.headers["Authorization"] == "Bearer given"


async def test_the_authority_may_be_data(tmp_path: Path) -> None:
    data = base64.b64encode(AUTHORITY.certificate).decode()
    cluster = {"server": SERVER, "certificate-authority-data": data, "certificate-authority": "not-looked-at"}
    access = await load(written(tmp_path, kubeconfig(cluster=cluster)), tmp_path).access()
    assert isinstance(access.ssl, ssl.SSLContext)
    assert len(access.ssl.get_ca_certs()) == 1


async def test_without_an_authority_the_system_decides(tmp_path: Path) -> None:
    access = await load(written(tmp_path, kubeconfig()), tmp_path).access()
    assert isinstance(access.ssl, ssl.SSLContext)
    assert access.ssl.verify_mode is ssl.CERT_REQUIRED


async def test_insecure_means_no_verification(tmp_path: Path) -> None:
    cluster = {"server": SERVER, "insecure-skip-tls-verify": True}
    access = await load(written(tmp_path, kubeconfig(cluster=cluster)), tmp_path).access()
    assert isinstance(access.ssl, ssl.SSLContext)
    assert access.ssl.verify_mode is ssl.CERT_NONE


async def test_plain_http_needs_no_tls(tmp_path: Path) -> None:
    access = await load(written(tmp_path, named(kubeconfig(), "http://127.0.0.1:8080/")), tmp_path).access()
    assert access.ssl is True


def test_the_server_name_to_verify_may_differ(tmp_path: Path) -> None:
    cluster = {"server": SERVER, "tls-server-name": "kubernetes"}
    assert load(written(tmp_path, kubeconfig(cluster=cluster)), tmp_path).tls_server_name == "kubernetes"


async def test_access_is_the_same_object_while_nothing_changes(tmp_path: Path) -> None:
    config = load(written(tmp_path, kubeconfig()), tmp_path)
    assert await config.access() is await config.access()


def test_a_process_without_a_home_gets_an_error_that_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ConfigError, match="There is no kubeconfig"):
        load_config(environ={}, service_account=tmp_path)


def test_nulls_are_as_good_as_nothing(tmp_path: Path) -> None:
    document = kubeconfig(user={"exec": None, "as-groups": None, "token": "t"}) | {"preferences": {}}
    assert load(written(tmp_path, document), tmp_path).server == SERVER


def test_without_any_configuration_the_error_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"There is no kubeconfig.*Set KUBECONFIG"):
        load(None, tmp_path)
