"""The commands of a person: log in to the registry, start the installer, and in it dhctl. No secret is in them."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.deckhouse.configuration import images_repo, registry_host
from gpu_control_plane.deckhouse.description import ClusterDescription, SecretReference

_INSTALLER_TAGS = {"EarlyAccess": "early-access", "RockSolid": "rock-solid"}
_SSH_FOLDER: Final = "~/.ssh/"
_KEY_FILE: Final = "dhctl-ssh-key"
_MOUNTED_KEY: Final = "/tmp/ssh-key"  # noqa: S108 - in the installer's container, where nobody else is
_RESOURCES_TIMEOUT: Final = "60m"
"""dhctl gives up on resources after 15 minutes by itself: machines that install a driver and reboot need longer."""


class Command(msgspec.Struct, frozen=True):
    """What to type, and why."""

    title: str
    text: str


def bootstrap_commands(cluster: ClusterDescription, folder: Path) -> Iterator[Command]:
    """Files are named relative to the description's folder there, so that the commands work wherever they are typed."""
    key = cluster.ssh.private_key
    if cluster.deckhouse.license is not None:
        yield Command("Log in to Deckhouse's registry", _login(cluster, cluster.deckhouse.license, folder))
    if key is not None and key.source == "env":
        yield Command(
            "Write the SSH key where the installer finds it, in the folder with the three files",
            f'install -m 600 /dev/stdin {_KEY_FILE} <<< "${key.name}"',
        )
    yield Command("Start the installer, in the folder with the three files", _installer(cluster, folder))
    yield Command("In it, install the first master; the others follow by themselves", _bootstrap(cluster))
    written = f"secrets.yml {_KEY_FILE}" if key is not None and key.source == "env" else "secrets.yml"
    yield Command("Then delete the secrets from this machine", f"shred -u {written}")


def installer_image(cluster: ClusterDescription) -> str:
    channel = cluster.deckhouse.release_channel
    return f"{images_repo(cluster)}/install:{_INSTALLER_TAGS.get(channel, channel.lower())}"


def _login(cluster: ClusterDescription, licence: SecretReference, folder: Path) -> str:
    login = f"docker login -u license-token --password-stdin {registry_host(cluster)}"
    encoded = cluster.deckhouse.license_encoding == "Base64"
    match licence.source:
        case "env":
            read = f'base64 -d <<< "${licence.name}"' if encoded else f'printf %s "${licence.name}"'
        case "file":
            path = _quoted(licence, folder)
            read = f"base64 -d {path}" if encoded else f"cat {path}"
        case _:
            key = 'base64 -d <<< "$key"' if encoded else 'printf %s "$key"'
            read = f"read -rsp 'Licence key: ' key; {key}"
    return f"{read} | {login}"


def _installer(cluster: ClusterDescription, folder: Path) -> str:
    return " \\\n  ".join(
        (
            "docker run --pull=always -it",
            '-v "$PWD/config.yml:/config.yml"',
            '-v "$PWD/secrets.yml:/secrets.yml"',
            '-v "$PWD/resources.yml:/resources.yml"',
            *_mounted_key(cluster.ssh.private_key, folder),
            '-v "$PWD/dhctl-tmp:/tmp/dhctl"',
            "--network=host",
            f"{installer_image(cluster)} bash",
        )
    )


def _mounted_key(key: SecretReference | None, folder: Path) -> Iterator[str]:
    """As others do, the whole of ~/.ssh if the key is there; else the key alone."""
    if key is not None and key.source == "env":
        yield f'-v "$PWD/{_KEY_FILE}:{_MOUNTED_KEY}:ro"'
    elif key is None or key.name.startswith(_SSH_FOLDER):
        yield '-v "$HOME/.ssh/:/tmp/.ssh/"'
    else:
        yield f"-v {_quoted(key, folder)}:{_MOUNTED_KEY}:ro"


def _quoted(file: SecretReference, folder: Path) -> str:
    """The path of a secret's file as a shell takes it, from wherever it is typed."""
    if file.name.startswith("~/"):
        return f'"$HOME"/{shlex.quote(file.name.removeprefix("~/"))}'
    return shlex.quote(str(folder / Path(file.name).expanduser()))


def _bootstrap(cluster: ClusterDescription) -> str:
    ssh = cluster.ssh
    options = [f"--ssh-user={shlex.quote(ssh.user)}", f"--ssh-host={cluster.master_addresses[0]}"]
    if ssh.port != 22:  # noqa: PLR2004 - the usual one
        options.append(f"--ssh-port={ssh.port}")
    if ssh.private_key is not None:
        name = ssh.private_key.name
        key = f"/tmp/.ssh/{name.removeprefix(_SSH_FOLDER)}" if name.startswith(_SSH_FOLDER) else _MOUNTED_KEY  # noqa: S108 - in the container
        options.append(f"--ssh-agent-private-keys={shlex.quote(key)}")
    lines = [f"dhctl bootstrap {' '.join(options)}"]
    lines += [f"--config={file}" for file in ("/config.yml", "/secrets.yml", "/resources.yml")]
    lines.append(f"--resources-timeout={_RESOURCES_TIMEOUT}")
    if ssh.sudo_password is not None:
        lines.append("--ask-become-pass")
    return " \\\n  ".join(lines)
