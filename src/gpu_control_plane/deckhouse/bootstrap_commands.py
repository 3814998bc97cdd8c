"""The commands of a person: log in to the registry, start the installer, and in it dhctl. No secret is in them."""

import shlex
from collections.abc import Iterator

import msgspec

from gpu_control_plane.deckhouse.configuration import images_repo
from gpu_control_plane.deckhouse.description import ClusterDescription, SecretReference

_INSTALLER_TAGS = {"EarlyAccess": "early-access", "RockSolid": "rock-solid"}
_WAIT = "60m"
"""dhctl gives up on resources after 15 minutes by itself: machines that install a driver and reboot need longer."""


class Command(msgspec.Struct, frozen=True):
    """What to type, and why."""

    title: str
    text: str


def bootstrap_commands(cluster: ClusterDescription) -> Iterator[Command]:
    if cluster.deckhouse.license is not None:
        yield Command("Log in to Deckhouse's registry", _login(cluster, cluster.deckhouse.license))
    yield Command("Start the installer, in the folder with the three files", _installer(cluster))
    yield Command("In it, install the first master; the others follow by themselves", _bootstrap(cluster))
    yield Command("Then delete the secrets from this machine", "shred -u secrets.yml")


def installer_image(cluster: ClusterDescription) -> str:
    channel = cluster.deckhouse.release_channel
    return f"{images_repo(cluster)}/install:{_INSTALLER_TAGS.get(channel, channel.lower())}"


def _login(cluster: ClusterDescription, licence: SecretReference) -> str:
    registry = shlex.quote(cluster.deckhouse.registry)
    login = f"docker login -u license-token --password-stdin {registry}"
    encoded = cluster.deckhouse.license_encoding == "Base64"
    match licence.source:
        case "env":
            read = f'base64 -d <<< "${licence.name}"' if encoded else f'printf %s "${licence.name}"'
        case "file":
            path = licence.name if licence.name.startswith("~/") else shlex.quote(licence.name)
            read = f"base64 -d {path}" if encoded else f"cat {path}"
        case _:
            key = 'base64 -d <<< "$key"' if encoded else 'printf %s "$key"'
            read = f"read -rsp 'Licence key: ' key; {key}"
    return f"{read} | {login}"


def _installer(cluster: ClusterDescription) -> str:
    return " \\\n  ".join(
        (
            "docker run --pull=always -it",
            '-v "$PWD/config.yml:/config.yml"',
            '-v "$PWD/secrets.yml:/secrets.yml"',
            '-v "$PWD/resources.yml:/resources.yml"',
            '-v "$HOME/.ssh/:/tmp/.ssh/"',
            '-v "$PWD/dhctl-tmp:/tmp/dhctl"',
            "--network=host",
            f"{installer_image(cluster)} bash",
        )
    )


def _bootstrap(cluster: ClusterDescription) -> str:
    ssh = cluster.ssh
    options = [f"--ssh-user={shlex.quote(ssh.user)}", f"--ssh-host={cluster.master_addresses[0]}"]
    if ssh.port != 22:  # noqa: PLR2004 - the usual one
        options.append(f"--ssh-port={ssh.port}")
    if ssh.private_key is not None:
        name = ssh.private_key.name.rsplit("/", 1)[-1] if ssh.private_key.source == "file" else "id_ed25519"
        options.append(f"--ssh-agent-private-keys=/tmp/.ssh/{shlex.quote(name)}")
    lines = [f"dhctl bootstrap {' '.join(options)}"]
    lines += [f"--config={file}" for file in ("/config.yml", "/secrets.yml", "/resources.yml")]
    lines.append(f"--resources-timeout={_WAIT}")
    if ssh.sudo_password is not None:
        lines.append("--ask-become-pass")
    return " \\\n  ".join(lines)
