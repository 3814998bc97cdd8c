"""Secrets are in `secrets.yml` and nowhere else, in the form that Deckhouse wants."""

import base64
import json
import shutil
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import yaml
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gpu_control_plane.cli.main import commands
from gpu_control_plane.deckhouse.check import check_files
from gpu_control_plane.deckhouse.description import SecretReference
from gpu_control_plane.deckhouse.errors import BadSecret
from gpu_control_plane.deckhouse.secrets import (
    SecretForm,
    SecretReader,
    authority_key,
    base64_text,
    bcrypt_hash,
    docker_config,
    is_bcrypt_hash,
    licence_login,
    plain,
    ssh_key,
)
from unit.deckhouse.descriptions import FOLDER, changed

PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nc3NoLXNlY3JldA==\n-----END OPENSSH PRIVATE KEY-----\n"
CEPH_KEY = "AQCephSecret=="
SUDO = "sudo-secret"
PASSWORD = "correct horse"
LICENCE = "licence-secret"
CA_KEY = generate_private_key(SECP256R1())


def pem_of(key: EllipticCurvePrivateKey, form: PrivateFormat = PrivateFormat.PKCS8, passphrase: bytes = b"") -> str:
    encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return key.private_bytes(Encoding.PEM, form, encryption).decode()


def locked(form: PrivateFormat) -> str:
    return pem_of(CA_KEY, form, b"a passphrase")


def certificate(ca: bool = True) -> x509.Certificate:
    """The certificate of an authority; or of none."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Internal CA")])
    builder = x509.CertificateBuilder(name, name, CA_KEY.public_key(), 1)
    builder = builder.not_valid_before(datetime(2026, 1, 1, tzinfo=UTC)).not_valid_after(
        datetime(2126, 1, 1, tzinfo=UTC)
    )
    return builder.add_extension(x509.BasicConstraints(ca, None), critical=True).sign(CA_KEY, SHA256())


CA = certificate()
CA_PEM = pem_of(CA_KEY)


@pytest.fixture
def described_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example, with secrets where it says they are."""
    folder = tmp_path / "cluster"
    (folder / "certificates").mkdir(parents=True)
    shutil.copy(FOLDER / "certificates/gitlab-registry.pem", folder / "certificates")
    (folder / "certificates/internal-ca.pem").write_bytes(CA.public_bytes(Encoding.PEM))
    (folder / "id_ed25519").write_text(PEM)
    (folder / "certificates/internal-ca.key").write_text(CA_PEM)
    (folder / "cluster.yaml").write_text(changed({"ssh.privateKey": "file:id_ed25519"}))
    monkeypatch.setenv("CEPH_USER_KEY", CEPH_KEY)
    monkeypatch.setenv("DECKHOUSE_LICENSE_KEY", base64.b64encode(LICENCE.encode()).decode())
    return folder


def render(folder: Path, *options: str, answers: str = "") -> str:
    ran = CliRunner().invoke(
        commands, ["deckhouse", "render", str(folder / "cluster.yaml"), *options], input=answers, catch_exceptions=False
    )
    assert ran.exit_code == 0, ran.output
    return ran.output


def forms() -> list[str]:
    """Every secret, as it is and as it may hide in Base64."""
    texts = (PEM, CA_PEM, CEPH_KEY, SUDO, PASSWORD, LICENCE, f"license-token:{LICENCE}")
    return [*(text.strip() for text in texts), *(base64.b64encode(text.encode()).decode() for text in texts)]


def test_nothing_but_secrets_yml_holds_a_secret(described_folder: Path) -> None:
    out = described_folder / "out"
    shown = render(described_folder, "-o", str(out), "--with-secrets", answers=f"{SUDO}\n{PASSWORD}\n{PASSWORD}\n")
    texts = [shown, *(file.read_text() for file in out.iterdir() if file.name != "secrets.yml")]
    assert [secret for secret in forms() for text in texts if secret in text] == []
    assert stat.S_IMODE((out / "secrets.yml").stat().st_mode) == 0o600
    assert (out / ".gitignore").read_text().splitlines() == ["secrets.yml", "dhctl-ssh-key", "dhctl-tmp/"]


def test_secrets_yml_holds_them_as_deckhouse_wants_them(described_folder: Path) -> None:
    out = described_folder / "out"
    render(described_folder, "-o", str(out), "--with-secrets", answers=f"{SUDO}\n{PASSWORD}\n{PASSWORD}\n")
    by_kind = {each["kind"]: each for each in yaml.safe_load_all((out / "secrets.yml").read_text()) if each}
    login = json.loads(base64.b64decode(by_kind["InitConfiguration"]["deckhouse"]["registryDockerCfg"]))
    assert base64.b64decode(login["auths"]["registry.deckhouse.ru"]["auth"]).decode() == f"license-token:{LICENCE}"
    ssh = by_kind["SSHCredentials"]["spec"]
    assert base64.b64decode(ssh["privateSSHKey"]).decode() == PEM
    assert base64.b64decode(ssh["sudoPasswordEncoded"]).decode() == SUDO
    assert by_kind["CephClusterConnection"]["spec"]["userKey"] == CEPH_KEY
    assert by_kind["CephClusterAuthentication"]["spec"]["userKey"] == CEPH_KEY
    assert bcrypt.checkpw(PASSWORD.encode(), by_kind["User"]["spec"]["password"].encode())
    assert base64.b64decode(by_kind["Secret"]["data"]["tls.key"]).decode() == CA_PEM


def test_the_three_files_together_are_what_deckhouse_accepts(described_folder: Path) -> None:
    out = described_folder / "out"
    render(described_folder, "-o", str(out), "--with-secrets", answers=f"{SUDO}\n{PASSWORD}\n{PASSWORD}\n")
    checked = check_files((file.name, file.read_text()) for file in sorted(out.glob("*.yml")))
    assert (checked.problems, checked.unknown) == ((), ())
    assert len(checked.documents) == 59


def test_without_asking_no_secret_is_read(tmp_path: Path) -> None:
    (tmp_path / "certificates").symlink_to(FOLDER / "certificates")
    (tmp_path / "cluster.yaml").write_text(changed({}))
    out = tmp_path / "out"
    shown = render(tmp_path, "-o", str(out))
    assert sorted(file.name for file in out.iterdir()) == ["config.yml", "resources.yml"]
    assert "Left out, since they hold secrets: InitConfiguration, SSHCredentials machines" in shown


def test_commands_are_shown_once_there_is_what_they_name(described_folder: Path) -> None:
    out = described_folder / "out"
    without = render(described_folder, "-o", str(out))
    assert "--with-secrets writes them to secrets.yml, and says what to type next." in without
    assert "docker run" not in without
    complete = render(described_folder, "-o", str(out), "--with-secrets", answers=f"{SUDO}\n{PASSWORD}\n{PASSWORD}\n")
    assert '-v "$PWD/secrets.yml:/secrets.yml"' in complete


def test_printing_shows_where_secrets_come_from() -> None:
    shown = render(FOLDER)
    assert "#   userKey: <key of the Ceph user, from env:CEPH_USER_KEY>" in shown
    assert "#   password: <password of admin, as a bcrypt hash, asked for>" in shown


def test_a_second_rendering_changes_nothing(described_folder: Path) -> None:
    out = described_folder / "out"
    render(described_folder, "-o", str(out))
    before = {file.name: (file.read_text(), file.stat().st_mtime_ns) for file in out.iterdir()}
    assert "unchanged" in render(described_folder, "-o", str(out))
    assert {file.name: (file.read_text(), file.stat().st_mtime_ns) for file in out.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["-o", "out", "--with-secrets"], 1, "The variable DECKHOUSE_LICENSE_KEY is not set"),
        (["--with-secrets"], 2, "--with-secrets writes a file: say where, with -o DIR."),
    ],
)
def test_a_secret_that_cannot_be_had_is_a_sentence(
    arguments: list[str], code: int, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DECKHOUSE_LICENSE_KEY", raising=False)
    ran = CliRunner().invoke(commands, ["deckhouse", "render", str(FOLDER / "cluster.yaml"), *arguments])
    assert ran.exit_code == code
    assert sentence in ran.output
    assert not (tmp_path / "out").exists()


def _never(form: SecretForm) -> str:
    raise AssertionError(form.name)


WRONG_SECRETS = [
    (ssh_key("key"), "no key", "a private key in PEM is needed"),
    (ssh_key("key"), locked(PrivateFormat.OpenSSH), "this key has a passphrase"),
    (ssh_key("key"), locked(PrivateFormat.PKCS8), "this key has a passphrase"),
    (authority_key(CA), "no key", "a private key in PEM is needed"),
    (
        authority_key(CA),
        pem_of(generate_private_key(SECP256R1())),
        "this is not the key of the authority's certificate",
    ),
    (authority_key(CA), locked(PrivateFormat.PKCS8), "this key has a passphrase"),
    (licence_login("r", "Base64"), "not base64!", "the licence key is not in Base64: set "),
    (docker_config("login"), "{}", "a Docker configuration with auths is needed"),
    (docker_config("login"), '{"auths": {}}', "holds no login under auths"),
    (bcrypt_hash("hash"), "x" * 73, "bcrypt takes at most 72 bytes"),
    (plain("key"), "two\nlines", "one line is expected"),
    (plain("key"), "\n", "The variable IT is not set"),
]


@pytest.mark.parametrize(("form", "text", "sentence"), WRONG_SECRETS, ids=[each[2] for each in WRONG_SECRETS])
def test_a_secret_of_the_wrong_kind_is_refused_and_not_repeated(
    form: SecretForm, text: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IT", text)
    with pytest.raises(BadSecret) as refused:
        SecretReader(Path(), _never)(SecretReference("env:IT"), form)
    assert sentence in str(refused.value)
    assert not text.strip() or text not in str(refused.value)


def test_a_certificate_that_may_not_sign_is_no_authority(described_folder: Path) -> None:
    (described_folder / "certificates/internal-ca.pem").write_bytes(certificate(ca=False).public_bytes(Encoding.PEM))
    ran = CliRunner().invoke(commands, ["deckhouse", "render", str(described_folder / "cluster.yaml")])
    assert "certificateAuthority.certificate: certificates/internal-ca.pem is no authority" in ran.output


def test_nothing_but_certificates_gets_out_of_their_files(described_folder: Path) -> None:
    file = described_folder / "certificates/gitlab-registry.pem"
    pem = file.read_text()
    file.write_text(f"Subject: {{{{ .cri }}}}\nEOF\nrm -rf /\n{pem}EOF\nreboot\n")
    shown = render(described_folder)
    assert pem.splitlines()[1] in shown
    assert not {"rm -rf /", "reboot", "Subject"} & {line.strip() for line in shown.splitlines()}
    assert "{{" not in shown


MODULE_SECRETS: list[tuple[str, dict[str, Any], str]] = [
    ("console", {"auth": {"password": "hidden"}}, "modules.console.settings.auth.password"),
    ("console", {"auth": {"password": 12345}}, "modules.console.settings.auth.password"),
    (
        "deckhouse",
        {"registry": {"direct": {"license": "hidden"}}},
        "modules.deckhouse.settings.registry.direct.license",
    ),
    ("console", {"providers": [{"clientSecret": "hidden"}]}, "modules.console.settings.providers[0].clientSecret"),
    ("console", {"certificate": pem_of(CA_KEY)}, "modules.console.settings.certificate"),
    ("console", {"proxy": "http://me:hidden@proxy:3128"}, "modules.console.settings.proxy"),
    ("console", {"passwords": ["hidden"]}, "modules.console.settings.passwords[0]"),
    ("console", {"users": {"password": ["hidden"]}}, "modules.console.settings.users.password[0]"),
    ("console", {"auth": {"password": {"value": "hidden"}}}, "modules.console.settings.auth.password.value"),
    ("console", {"apiKeys": [{"of": {"me": 1.5}}]}, "modules.console.settings.apiKeys[0].of.me"),
    ("console", {"env": [{"name": "DB_PASSWORD", "value": "hidden"}]}, "modules.console.settings.env[0].value"),
    ("", {"ray": {"env": {"SOME_TOKEN": "hidden"}}}, "gpuControlPlane.settings.ray.env.SOME_TOKEN"),
    ("", {"nodeSelector": {"a/token": "hidden"}}, "gpuControlPlane.settings.nodeSelector.a/token"),
]


@pytest.mark.parametrize(("module", "settings", "place"), MODULE_SECRETS, ids=[each[2] for each in MODULE_SECRETS])
def test_a_secret_among_settings_is_refused_and_not_repeated(
    module: str, settings: dict[str, Any], place: str, described_folder: Path
) -> None:
    ours = {"gpuControlPlane.settings": settings}
    text = changed({f"modules.{module}": {"version": 1, "settings": settings}} if module else ours)
    (described_folder / "cluster.yaml").write_text(text)
    ran = CliRunner().invoke(commands, ["deckhouse", "render", str(described_folder / "cluster.yaml")])
    assert ran.exit_code == 1
    assert f"{place}: this looks like a secret, which has no place in this file" in ran.output
    assert "hidden" not in ran.output
    assert "PRIVATE KEY" not in ran.output


def test_a_secret_among_settings_comes_from_where_they_say(
    described_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSOLE_PASSWORD", "hidden")
    settings = {"auth": {"password": "env:CONSOLE_PASSWORD", "secretName": "tls", "idTokenTTL": "10m"}}
    text = changed({"modules.console": {"version": 1, "settings": settings}, "ssh.privateKey": "file:id_ed25519"})
    (described_folder / "cluster.yaml").write_text(text)
    out = described_folder / "out"
    render(described_folder, "-o", str(out), "--with-secrets", answers=f"{SUDO}\n{PASSWORD}\n{PASSWORD}\n")
    config = (out / "config.yml").read_text()
    assert "#       password: <auth.password of console, from env:CONSOLE_PASSWORD>" in config
    assert "hidden" not in config
    written = [each for each in yaml.safe_load_all((out / "secrets.yml").read_text()) if each["kind"] == "ModuleConfig"]
    assert [each["spec"]["settings"]["auth"] for each in written] == [
        {"password": "hidden", "secretName": "tls", "idTokenTTL": "10m"}
    ]


def test_a_secret_among_our_own_settings_comes_from_where_they_say(
    described_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TOKEN", "hidden")
    settings = {"ray": {"env": {"SOME_TOKEN": "env:RAY_TOKEN", "ENABLE_PROBES_INJECTION": "false"}}}
    text = changed({"gpuControlPlane.settings": settings, "ssh.privateKey": "file:id_ed25519"})
    (described_folder / "cluster.yaml").write_text(text)
    out = described_folder / "out"
    render(described_folder, "-o", str(out), "--with-secrets", answers=f"{SUDO}\n{PASSWORD}\n{PASSWORD}\n")
    resources = (out / "resources.yml").read_text()
    assert "SOME_TOKEN: <ray.env.SOME_TOKEN of gpu-control-plane, from env:RAY_TOKEN>" in resources
    assert "hidden" not in resources
    written = [each for each in yaml.safe_load_all((out / "secrets.yml").read_text()) if each["kind"] == "ModuleConfig"]
    assert [each["spec"]["settings"]["ray"]["env"] for each in written] == [
        {"SOME_TOKEN": "hidden", "ENABLE_PROBES_INJECTION": "false"}
    ]


def test_a_hash_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = bcrypt.hashpw(b"a", bcrypt.gensalt(4)).decode()
    monkeypatch.setenv("HASH", hashed)
    assert SecretReader(Path(), _never)(SecretReference("env:HASH"), bcrypt_hash("hash")) == hashed
    assert is_bcrypt_hash(base64.b64encode(hashed.encode()).decode())
    assert not is_bcrypt_hash("secret")


def test_what_is_asked_for_is_asked_once() -> None:
    asked: list[str] = []

    def ask(form: SecretForm) -> str:
        asked.append(form.name)
        return "a"

    reader = SecretReader(Path(), ask)
    form = base64_text("sudo password")
    assert reader(SecretReference("ask"), form) == reader(SecretReference("ask"), form) == "YQ=="
    assert asked == ["sudo password"]


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadSecret, match=r"nowhere: No such file or directory\. It should hold the key\."):
        SecretReader(tmp_path, _never)(SecretReference("file:nowhere"), plain("key"))
