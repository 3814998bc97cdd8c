"""Every way a configuration can be wrong ends in one sentence that names the place and the next step."""

import base64
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from gpu_control_plane.kube.certificates import KeyPair, issue, new_authority
from gpu_control_plane.kube.config import load_config
from gpu_control_plane.kube.errors import ConfigError
from kubeconfigs import SERVER, kubeconfig, written

NOW = datetime.now(UTC)
AUTHORITY = new_authority("test", now=NOW, valid_for=timedelta(days=1))
ANN = issue(AUTHORITY, ["ann"], now=NOW, valid_for=timedelta(days=1))
BOB = issue(AUTHORITY, ["bob"], now=NOW, valid_for=timedelta(days=1))


def data(content: bytes) -> str:
    return base64.b64encode(content).decode()


def encrypted(pair: KeyPair) -> bytes:
    key = serialization.load_pem_private_key(pair.key, None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )


def cluster(**fields: object) -> dict[str, object]:
    return kubeconfig(cluster={"server": SERVER} | {key.replace("_", "-"): value for key, value in fields.items()})


def user(**fields: object) -> dict[str, object]:
    names = {"tokenFile": "tokenFile", "as_": "as"}
    return kubeconfig(user={names.get(key, key.replace("_", "-")): value for key, value in fields.items()})


def plugin(**fields: object) -> dict[str, object]:
    version = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "x"}
    return user(exec={key: value for key, value in (version | fields).items() if value is not None})


CASES: dict[str, tuple[object, str]] = {
    "bad YAML": ("a: b\n  c: [", "config is not YAML: .*line 2.* Correct it"),
    "nested YAML": ("[" * 300_000 + "]" * 300_000, "nested more than 100 levels deep. Correct it"),
    "nested JSON": ('{"a":' * 300_000 + "1" + "}" * 300_000, "nested more than 100 levels deep. Correct it"),
    "binary": ("a\x00b", "is not YAML but something binary"),
    "not a mapping": ("- a\n- b\n", "has a wrong field: Expected `object`, got `array`"),
    "wrong type": (cluster(proxy_url=5), r"wrong field: Expected `str \| null`, got `int` - at `\$.clusters"),
    "not base64": (cluster(certificate_authority_data="%%%"), "wrong field: Invalid base64"),
    "no current context": (
        kubeconfig() | {"current-context": ""},
        "has no current context; it has here. Choose one: kubectl config use-context NAME",
    ),
    "empty": ("", "has no current context; it has no contexts at all"),
    "unknown context": (
        kubeconfig() | {"current-context": "gone"},
        'There is no context "gone" in .*; it has here. Name one of them',
    ),
    "unknown cluster": (
        kubeconfig() | {"clusters": []},
        'Context "here" .* names the cluster "there", which is not defined there. Add it: kubectl config set-cluster',
    ),
    "unknown user": (
        kubeconfig() | {"users": []},
        'Context "here" .* names the user "me", which is not defined there. Add it: kubectl config set-credentials',
    ),
    "no server": (kubeconfig(cluster={}), 'Cluster "there" .* has no server. Add it'),
    "server without a scheme": (
        kubeconfig(cluster={"server": "kubernetes.example:6443"}),
        'is "kubernetes.example:6443", without https:// .* Write https://kubernetes.example:6443',
    ),
    "server without a host": (kubeconfig(cluster={"server": "https://"}), "which is no address. Write it as"),
    "server with a bad port": (kubeconfig(cluster={"server": "https://a:999999"}), "which is no address"),
    "CA file missing": (cluster(certificate_authority="ca.crt"), r"authority file /.*/ca.crt cannot be read \(No such"),
    "CA is not PEM": (
        cluster(certificate_authority_data=data(b"nonsense")),
        'The certificate authority of cluster "there" .* holds no PEM certificate .* Replace it',
    ),
    "CA checked with a plugin too": (
        plugin() | {"clusters": cluster(certificate_authority_data=data(b"nonsense"))["clusters"]},
        "holds no PEM certificate",
    ),
    "CA and insecure": (
        cluster(certificate_authority_data=data(AUTHORITY.certificate), insecure_skip_tls_verify=True),
        "which exclude each other. Remove insecure-skip-tls-verify",
    ),
    "socks proxy": (
        cluster(proxy_url="socks5://me:secret@proxy:1080"),
        r"asks for a socks5 proxy \(socks5://proxy:1080\), which is not supported. Use an http",
    ),
    "proxy without a host": (cluster(proxy_url="http://:3128"), "names no host"),
    "https proxy on the server's own host": (cluster(proxy_url="https://kubernetes.example"), "own, or use http://"),
    "certificate without a key": (user(client_certificate="a.crt"), "a client-certificate but no client-key. Add it"),
    "key without a certificate": (user(client_key="a.key"), "has a client-key but no client-certificate. Add it"),
    "key unreadable": (
        user(client_certificate_data=data(ANN.certificate), client_key="a.key"),
        r"The client key file /.*/a.key cannot be read \(No such file or directory\). Check",
    ),
    "key of another": (
        user(client_certificate_data=data(ANN.certificate), client_key_data=data(BOB.key)),
        "The key of the client certificate in the kubeconfig does not belong to it",
    ),
    "key encrypted": (
        user(client_certificate_data=data(ANN.certificate), client_key_data=data(encrypted(ANN))),
        "is encrypted, and no password can be asked for. Store it decrypted: openssl pkey",
    ),
    "certificate is not PEM": (
        user(client_certificate_data=data(b"nonsense"), client_key_data=data(ANN.key)),
        "The client certificate in the kubeconfig is not a PEM certificate with a PEM key",
    ),
    "token file missing": (user(tokenFile="token"), "The token file /.*/token cannot be read"),
    "token of several words": (user(token="two words"), 'The token of the user "me" in .* has characters no token has'),
    "token and password": (user(token="t", username="ann"), "has both a token and a username. Remove one"),
    "groups without a user": (user(as_groups=["dev"]), "without a user. Add as: NAME"),
    "auth-provider": (
        user(auth_provider={"name": "gcp"}),
        'The user "me" .* uses the auth-provider "gcp", which Kubernetes has removed. Use the exec plugin',
    ),
    "plugin of an old version": (
        plugin(apiVersion="client.authentication.k8s.io/v1alpha1"),
        "v1 and client.authentication.k8s.io/v1beta1 are understood. Update the plugin",
    ),
    "plugin without a command": (plugin(command=""), "has no command. Name the program"),
    "plugin without a mode": (
        plugin(interactiveMode=None),
        "has no interactiveMode.* Add interactiveMode: IfAvailable",
    ),
    "plugin with a wrong mode": (plugin(interactiveMode="Sometimes"), "wrong field: Invalid enum value 'Sometimes'"),
}


@pytest.mark.parametrize(("document", "sentence"), CASES.values(), ids=CASES)
def test_a_fault_is_one_clear_sentence(tmp_path: Path, document: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(written(tmp_path, document), environ={})
    assert re.search(sentence, str(raised.value)), str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"There is no kubeconfig at .*/gone. Create it, or name another one"):
        load_config(tmp_path / "gone")


def test_a_folder_is_no_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        load_config(tmp_path)


def test_a_list_of_missing_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no kubeconfig at /gone, /away"):
        load_config(environ={"KUBECONFIG": "/gone:/away"})
