"""Secrets are in `secrets.yml` and nowhere else, in the form that Deckhouse wants."""

import base64
import json
import stat
from pathlib import Path

import bcrypt
import pytest
import yaml
from click.testing import CliRunner

from gpu_control_plane.cli.main import commands
from gpu_control_plane.deckhouse.check import check_files
from gpu_control_plane.deckhouse.description import SecretReference
from gpu_control_plane.deckhouse.errors import BadSecret
from gpu_control_plane.deckhouse.secrets import (
    SecretForm,
    SecretReader,
    base64_text,
    bcrypt_hash,
    docker_config,
    is_bcrypt_hash,
    licence_login,
    plain,
    private_key,
)
from unit.deckhouse.descriptions import FOLDER, changed

PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nc3NoLXNlY3JldA==\n-----END OPENSSH PRIVATE KEY-----\n"
CA_PEM = "-----BEGIN EC PRIVATE KEY-----\nY2Etc2VjcmV0\n-----END EC PRIVATE KEY-----\n"
CEPH_KEY = "AQCephSecret=="
SUDO = "sudo-secret"
PASSWORD = "correct horse"
LICENCE = "licence-secret"


@pytest.fixture
def described_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example, with secrets where it says they are."""
    folder = tmp_path / "cluster"
    (folder / "certificates").mkdir(parents=True)
    for certificate in (FOLDER / "certificates").iterdir():
        (folder / "certificates" / certificate.name).write_text(certificate.read_text())
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
    assert "secrets.yml" in (out / ".gitignore").read_text().splitlines()


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
    (private_key("key"), "no key", "a private key in PEM is needed"),
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
