"""Where official releases are published, file by file, and what vouches for each file."""

import enum
import os
from collections.abc import Mapping

import msgspec

from gpu_control_plane.local.platforms import Platform
from gpu_control_plane.local.versions import CONTAINERD, ETCD, KUBERNETES, KWOK, release_of


class Checksum(enum.Enum):
    """The forms in which publishers give a SHA-256."""

    BARE = "a file that holds nothing else"
    SUMS = "a file with a line per published file"
    GITHUB = "the digest in GitHub's description of the release"


class Artefact(msgspec.Struct, frozen=True):
    """One file to download, and the programs to take out of it when it is an archive."""

    url: str
    checksum_url: str
    checksum: Checksum
    programs: dict[str, str | None]
    """Where each program lies in the archive; nothing where the file is the program itself."""

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2]


class Origins(msgspec.Struct, frozen=True):
    """The hosts of the official releases. A mirror with the same layout can stand in for each."""

    kubernetes: str = "https://dl.k8s.io"
    github: str = "https://github.com"
    github_api: str = "https://api.github.com"


def origins(environ: Mapping[str, str] = os.environ) -> Origins:
    """The official hosts, or what the environment puts in their place."""
    official = Origins()
    return Origins(
        kubernetes=environ.get("GPU_CONTROL_PLANE_KUBERNETES_URL", official.kubernetes).rstrip("/"),
        github=environ.get("GPU_CONTROL_PLANE_GITHUB_URL", official.github).rstrip("/"),
        github_api=environ.get("GPU_CONTROL_PLANE_GITHUB_API_URL", official.github_api).rstrip("/"),
    )


def artefact(program: str, platform: Platform, hosts: Origins) -> Artefact | None:
    """The published file with this program, or nothing where its publisher has none for the platform."""
    release = release_of(program)
    if release is KUBERNETES:
        # For macOS the project publishes kubectl, but none of the server programs.
        if platform.os != "linux" and program != "kubectl":
            return None
        url = f"{hosts.kubernetes}/{release.version}/bin/{platform.os}/{platform.arch}/{program}"
        return Artefact(url, f"{url}.sha256", Checksum.BARE, {program: None})
    if release is ETCD:
        folder = f"{hosts.github}/etcd-io/etcd/releases/download/{release.version}"
        stem = f"etcd-{release.version}-{platform.os}-{platform.arch}"
        archive = f"{stem}.zip" if platform.os == "darwin" else f"{stem}.tar.gz"
        return Artefact(f"{folder}/{archive}", f"{folder}/SHA256SUMS", Checksum.SUMS, {program: f"{stem}/{program}"})
    if release is KWOK:
        project = "kubernetes-sigs/kwok"
        return Artefact(
            f"{hosts.github}/{project}/releases/download/{release.version}/kwok-{platform.os}-{platform.arch}",
            f"{hosts.github_api}/repos/{project}/releases/tags/{release.version}",
            Checksum.GITHUB,
            {program: None},
        )
    if release is CONTAINERD:
        if platform.os != "linux":
            return None
        version = release.version.removeprefix("v")
        folder = f"{hosts.github}/containerd/containerd/releases/download/{release.version}"
        url = f"{folder}/containerd-{version}-{platform.os}-{platform.arch}.tar.gz"
        return Artefact(url, f"{url}.sha256sum", Checksum.SUMS, {each: f"bin/{each}" for each in release.programs})
    raise AssertionError(f"nobody said where {release.name} is published")
