"""Exec plugins: real programs, started for real."""

import asyncio
import json
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpu_control_plane.kube.certificates import issue, new_authority
from gpu_control_plane.kube.config import load_config
from gpu_control_plane.kube.errors import CredentialsError
from gpu_control_plane.kube.exec_plugin import ExecSource
from gpu_control_plane.kube.kubeconfig import Exec, InteractiveMode, Variable
from kubeconfigs import SERVER, kubeconfig, written
from waiting import until

V1 = "client.authentication.k8s.io/v1"
NOW = 1_800_000_000.0


def program(folder: Path, body: str, name: str = "plugin") -> Path:
    """An executable shell script: it starts in a fraction of the time of a Python program."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def credential(status: Mapping[str, object] | None, version: str = V1) -> str:
    fields = {"apiVersion": version, "kind": "ExecCredential"}
    return prints(json.dumps(fields if status is None else {**fields, "status": status}))


def prints(text: str) -> str:
    return f"printf %s {shlex.quote(text)}"


def printing(folder: Path, status: Mapping[str, object], version: str = V1) -> Path:
    return program(folder, credential(status, version))


def source(command: Path | str, **fields: object) -> ExecSource:
    time_limit = fields.pop("time_limit", 20.0)
    assert isinstance(time_limit, float)
    defaults: dict[str, object] = {"interactive_mode": InteractiveMode.NEVER, "api_version": V1}
    plugin = Exec(command=str(command), **(defaults | fields))  # type: ignore[arg-type]
    return ExecSource(plugin, now=lambda: NOW, terminal=lambda: False, time_limit=time_limit)


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat().replace("+00:00", "Z")


async def test_a_plugin_gives_a_token(tmp_path: Path) -> None:
    fetched = await source(printing(tmp_path, {"token": "abc"})).fetch()
    assert fetched.identity.authorization == "Bearer abc"
    assert fetched.expires_at == float("inf")


async def test_a_plugin_of_the_beta_version_gives_a_token(tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1beta1"
    plugin = printing(tmp_path, {"token": "abc"}, version)
    assert (await source(plugin, api_version=version).fetch()).identity.authorization == "Bearer abc"


@pytest.mark.parametrize(
    ("life", "renewed_after"), [(3600, 3540), (300, 240), (10, 8), (0, 1), (-100, 1)], ids=lambda value: f"{value}s"
)
async def test_renewal_is_due_before_the_token_expires(tmp_path: Path, life: float, renewed_after: float) -> None:
    fetched = await source(printing(tmp_path, {"token": "abc", "expirationTimestamp": at(life)})).fetch()
    assert (fetched.renew_at - NOW, fetched.expires_at - NOW) == (renewed_after, life)


async def test_a_plugin_gives_a_client_certificate(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    ann = issue(new_authority("x", now=now, valid_for=timedelta(days=1)), ["ann"], now=now, valid_for=timedelta(days=1))
    status = {"clientCertificateData": ann.certificate.decode(), "clientKeyData": ann.key.decode()}
    identity = (await source(printing(tmp_path, status)).fetch()).identity
    assert identity.certificate is not None
    assert (identity.certificate.certificate, identity.certificate.key) == (ann.certificate, ann.key)
    assert identity.authorization is None


async def test_arguments_and_variables_reach_the_plugin(tmp_path: Path) -> None:
    template = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "%s%s"}})
    plugin = program(tmp_path, f'printf {shlex.quote(template)} "$1" "$FLAVOUR"')
    fetched = await source(plugin, args=("plain-",), env=(Variable(name="FLAVOUR", value="vanilla"),)).fetch()
    assert fetched.identity.authorization == "Bearer plain-vanilla"


async def test_a_plugin_gets_cluster_info_when_it_asks_for_it(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    program(tmp_path, f'printf %s "$KUBERNETES_EXEC_INFO" > {seen}\n{credential({"token": "abc"})}')
    plugin = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never", "provideClusterInfo": True}
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": ["a", 1, None]}}
    cluster = {"server": SERVER, "tls-server-name": "kubernetes", "extensions": [extension]}
    config = load_config(written(tmp_path, kubeconfig(cluster=cluster, user={"exec": plugin})))
    assert (await config.access()).headers["Authorization"] == "Bearer abc"
    assert json.loads(seen.read_text()) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {"server": SERVER, "tls-server-name": "kubernetes", "config": {"audience": ["a", 1, None]}},
        },
    }


async def test_a_plugin_without_a_folder_is_found_on_the_path(tmp_path: Path) -> None:
    printing(tmp_path, {"token": "abc"})
    plugin = Exec(command="plugin", api_version=V1, interactive_mode=InteractiveMode.NEVER)
    fetched = await ExecSource(plugin, environ={"PATH": str(tmp_path)}, terminal=lambda: False).fetch()
    assert fetched.identity.authorization == "Bearer abc"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("echo 'log in first' >&2; exit 1", "failed with exit code 1, saying: log in first"),
        ("exit 3", "failed with exit code 3 and said nothing"),
        ("(head -c 9000 /dev/zero | tr '\\0' x; printf 'the end') >&2; exit 1", "saying: x{1993}the end$"),
        (credential({"token": "two\nlines"}), "has characters no token has"),
        ("echo hello", "printed no ExecCredential .* Run it by hand"),
        ("true", "printed no ExecCredential"),
        (
            "printf '{}'; head -c 3000000 /dev/zero | tr '\\0' ' '; printf x",
            'printed a "" of ""|printed no ExecCredential',
        ),
        (prints('{"kind": "Pod", "apiVersion": "v1"}'), 'printed a "Pod" of "v1" where'),
        (
            credential(None, "client.authentication.k8s.io/v1beta1"),
            'of "client.authentication.k8s.io/v1beta1" where an ExecCredential of "client.authentication.k8s.io/v1"',
        ),
        (credential(None), "gave neither a token nor a client certificate"),
        (
            credential({"clientKeyData": "x"}),
            "gave a client certificate without its key, or a key without its certificate",
        ),
    ],
    ids=lambda value: value[:30],
)
async def test_a_plugin_that_fails_is_quoted(tmp_path: Path, body: str, sentence: str) -> None:
    with pytest.raises(CredentialsError, match=f"exec plugin .*/plugin .*{sentence}"):
        await source(program(tmp_path, body)).fetch()


async def test_a_plugin_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    plugin = program(tmp_path, f"sleep 600 &\necho $! > {pid_file}\nprintf 'waiting for you' >&2\nwait")
    with pytest.raises(CredentialsError, match=r"did not answer within 1.5 s, saying: waiting for you"):
        await source(plugin, time_limit=1.5).fetch()
    await until(lambda: _is_gone(int(pid_file.read_text())), saying="the plugin's child has ended")


async def test_giving_up_ends_the_plugin(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    plugin = program(tmp_path, f"echo $$ > {pid_file}\nexec sleep 600")
    fetching = asyncio.create_task(source(plugin).fetch())
    await until(lambda: pid_file.exists() and pid_file.read_text())
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    await until(lambda: _is_gone(int(pid_file.read_text())), saying="the plugin has ended")


async def test_a_missing_plugin_is_answered_with_its_hint() -> None:
    with pytest.raises(CredentialsError, match=r"/gone/plugin is not installed. Get it from the shelf.$"):
        await source("/gone/plugin", install_hint="\nGet it from the shelf.\n").fetch()


async def test_a_file_that_is_no_program_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "plugin"
    path.write_bytes(b"\x00\x01")
    path.chmod(0o755)
    with pytest.raises(CredentialsError, match=r"cannot be started \(Exec format error\)"):
        await source(path).fetch()


async def test_a_plugin_that_must_ask_needs_a_terminal(tmp_path: Path) -> None:
    plugin = printing(tmp_path, {"token": "abc"})
    with pytest.raises(CredentialsError, match=r"wants to ask a person, and there is no terminal"):
        await source(plugin, interactive_mode=InteractiveMode.ALWAYS).fetch()


async def test_a_person_sees_what_a_plugin_asks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = tmp_path / "seen"
    body = f'printf "open this page" >&2; printf %s "$KUBERNETES_EXEC_INFO" > {seen}\n{credential({"token": "abc"})}'
    plugin = Exec(command=str(program(tmp_path, body)), api_version=V1, interactive_mode=InteractiveMode.IF_AVAILABLE)
    fetched = await ExecSource(plugin, terminal=lambda: True).fetch()
    assert fetched.identity.authorization == "Bearer abc"
    assert json.loads(seen.read_text())["spec"]["interactive"] is True
    assert "open this page" in capsys.readouterr().err


def _is_gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True
