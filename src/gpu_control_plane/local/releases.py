"""Where official releases are published, file by file, and where the checksum of each is."""

import enum
import os
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gpu_control_plane.local.platforms import Platform
from gpu_control_plane.local.versions import (
    CONTAINERD,
    COREDNS,
    DEX,
    ETCD,
    HELM,
    KUBE_STATE_METRICS,
    KUBECONFORM,
    KUBERNETES,
    KWOK,
    NFD,
    Release,
    release_of,
)


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
    """The path of each program in the archive; None where the file is the program itself."""

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2]


class Origins(msgspec.Struct, frozen=True):
    """The hosts of the official releases. A mirror with the same layout can stand in for each."""

    kubernetes: str = "https://dl.k8s.io"
    github: str = "https://github.com"
    github_api: str = "https://api.github.com"
    helm: str = "https://get.helm.sh"


def origins(environ: Mapping[str, str] = os.environ) -> Origins:
    """The official hosts, or what the environment puts in their place."""
    official = Origins()
    return Origins(
        kubernetes=environ.get("GPU_CONTROL_PLANE_KUBERNETES_URL", official.kubernetes).rstrip("/"),
        github=environ.get("GPU_CONTROL_PLANE_GITHUB_URL", official.github).rstrip("/"),
        github_api=environ.get("GPU_CONTROL_PLANE_GITHUB_API_URL", official.github_api).rstrip("/"),
        helm=environ.get("GPU_CONTROL_PLANE_HELM_URL", official.helm).rstrip("/"),
    )


def artefact(program: str, platform: Platform, hosts: Origins) -> Artefact | None:
    """The published file with this program; None where its publisher has none for the platform."""
    return _PUBLISHED[release_of(program)](program, platform, hosts)


def _kubernetes(program: str, platform: Platform, hosts: Origins) -> Artefact | None:
    # For macOS the project publishes kubectl, but none of the server programs.
    if platform.os != "linux" and program != "kubectl":
        return None
    url = f"{hosts.kubernetes}/{KUBERNETES.version}/bin/{platform.os}/{platform.arch}/{program}"
    return Artefact(url, f"{url}.sha256", Checksum.BARE, {program: None})


def _etcd(program: str, platform: Platform, hosts: Origins) -> Artefact:
    folder = f"{hosts.github}/etcd-io/etcd/releases/download/{ETCD.version}"
    stem = f"etcd-{ETCD.version}-{platform.os}-{platform.arch}"
    archive = f"{stem}.zip" if platform.os == "darwin" else f"{stem}.tar.gz"
    return Artefact(f"{folder}/{archive}", f"{folder}/SHA256SUMS", Checksum.SUMS, {program: f"{stem}/{program}"})


def _kwok(program: str, platform: Platform, hosts: Origins) -> Artefact:
    project = "kubernetes-sigs/kwok"
    return Artefact(
        f"{hosts.github}/{project}/releases/download/{KWOK.version}/kwok-{platform.os}-{platform.arch}",
        f"{hosts.github_api}/repos/{project}/releases/tags/{KWOK.version}",
        Checksum.GITHUB,
        {program: None},
    )


def _containerd(_program: str, platform: Platform, hosts: Origins) -> Artefact | None:
    if platform.os != "linux":
        return None
    version = CONTAINERD.version.removeprefix("v")
    folder = f"{hosts.github}/containerd/containerd/releases/download/{CONTAINERD.version}"
    url = f"{folder}/containerd-{version}-{platform.os}-{platform.arch}.tar.gz"
    return Artefact(url, f"{url}.sha256sum", Checksum.SUMS, {each: f"bin/{each}" for each in CONTAINERD.programs})


def _coredns(program: str, platform: Platform, hosts: Origins) -> Artefact:
    folder = f"{hosts.github}/coredns/coredns/releases/download/{COREDNS.version}"
    url = f"{folder}/coredns_{COREDNS.version.removeprefix('v')}_{platform.os}_{platform.arch}.tgz"
    return Artefact(url, f"{url}.sha256", Checksum.SUMS, {program: program})


def _helm(program: str, platform: Platform, hosts: Origins) -> Artefact:
    url = f"{hosts.helm}/helm-{HELM.version}-{platform.os}-{platform.arch}.tar.gz"
    return Artefact(url, f"{url}.sha256sum", Checksum.SUMS, {program: f"{platform.os}-{platform.arch}/{program}"})


def _kubeconform(program: str, platform: Platform, hosts: Origins) -> Artefact:
    folder = f"{hosts.github}/yannh/kubeconform/releases/download/{KUBECONFORM.version}"
    archive = f"kubeconform-{platform.os}-{platform.arch}.tar.gz"
    return Artefact(f"{folder}/{archive}", f"{folder}/CHECKSUMS", Checksum.SUMS, {program: program})


def _kube_state_metrics(_program: str, _platform: Platform, _hosts: Origins) -> None:
    """Its publisher has container images only."""


def _node_feature_discovery(_program: str, _platform: Platform, _hosts: Origins) -> None:
    """Published as an image only."""


def _dex(_program: str, _platform: Platform, _hosts: Origins) -> None:
    """Published as an image only."""


_PUBLISHED: Final[dict[Release, Callable[[str, Platform, Origins], Artefact | None]]] = {
    KUBERNETES: _kubernetes,
    ETCD: _etcd,
    KWOK: _kwok,
    CONTAINERD: _containerd,
    COREDNS: _coredns,
    HELM: _helm,
    KUBECONFORM: _kubeconform,
    KUBE_STATE_METRICS: _kube_state_metrics,
    NFD: _node_feature_discovery,
    DEX: _dex,
}
