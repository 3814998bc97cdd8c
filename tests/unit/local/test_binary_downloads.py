"""Official downloads: used when their checksum is right, refused when it is wrong, skipped when there is none."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_control_plane.local.binaries import ensure_binaries
from gpu_control_plane.local.checksums import read_checksums, record_checksums
from gpu_control_plane.local.downloads import published_checksum
from gpu_control_plane.local.errors import BinaryUnavailable, ChecksumMismatch
from gpu_control_plane.local.platforms import Platform, this_platform
from gpu_control_plane.local.releases import Artefact, Origins, artefact
from gpu_control_plane.local.versions import (
    CONTAINERD,
    COREDNS,
    ETCD,
    HELM,
    KUBECONFORM,
    KUBERNETES,
    KWOK,
    RELEASES,
    TEST_RELEASES,
)
from unit.local.recorded_progress import RecordedProgress
from unit.local.release_host import ReleaseHost, content_of, release_host

EVERYTHING = [program for release in RELEASES for program in release.programs]


@pytest.fixture
def host() -> Iterator[ReleaseHost]:
    with release_host(this_platform()) as host:
        yield host


def test_programs_are_downloaded_and_can_be_run(host: ReleaseHost, tmp_path: Path) -> None:
    binaries = ensure_binaries(EVERYTHING, RecordedProgress(), host.environ(tmp_path))
    for program in EVERYTHING:
        assert subprocess.check_output([binaries.path(program)], text=True).strip() == program


def test_the_cache_is_used_before_the_network(host: ReleaseHost, tmp_path: Path) -> None:
    ensure_binaries(EVERYTHING, RecordedProgress(), host.environ(tmp_path))
    host.requests.clear()
    ensure_binaries(EVERYTHING, RecordedProgress(), host.environ(tmp_path))
    assert host.requests == []


def test_an_archive_of_several_programs_is_fetched_once(host: ReleaseHost, tmp_path: Path) -> None:
    ensure_binaries(CONTAINERD.programs, RecordedProgress(), host.environ(tmp_path))
    assert len([path for path in host.requests if path.endswith(".tar.gz")]) == 1


@pytest.mark.parametrize("program", ["kube-apiserver", "etcd", "kwok", "ctr"])
def test_a_wrong_checksum_is_refused_and_the_file_removed(host: ReleaseHost, tmp_path: Path, program: str) -> None:
    published = artefact(program, this_platform(), Origins("", "", ""))
    assert published is not None
    host.files[published.url] += b"something more"
    with pytest.raises(ChecksumMismatch, match=rf"{published.file} was refused.*SHA-256.*removed"):
        ensure_binaries([program], RecordedProgress(), host.environ(tmp_path))
    assert _files(tmp_path) == []


def test_a_file_that_differs_from_its_recorded_checksum_is_refused_whatever_its_publisher_says(
    host: ReleaseHost, tmp_path: Path
) -> None:
    official = artefact("kubectl", this_platform(), Origins())
    assert official is not None
    with pytest.raises(ChecksumMismatch, match=rf"{official.file} was refused.*but this repository says {'0' * 64}"):
        ensure_binaries(["kubectl"], RecordedProgress(), host.environ(tmp_path), {official.url: "0" * 64})
    assert _files(tmp_path) == []


def test_what_publishers_say_is_recorded_once_and_then_asked_no_more(host: ReleaseHost, tmp_path: Path) -> None:
    file, hosts = tmp_path / "checksums.txt", Origins(host.address, host.address, f"{host.address}/api")

    def published(each: Artefact) -> str:
        return published_checksum(each) if _path(each.url) in host.files else "f" * 64

    count = record_checksums(hosts, published, file)
    recorded = read_checksums(file)
    assert len(recorded) == count
    assert all(url.startswith("https://") for url in recorded)
    host.requests.clear()
    ensure_binaries(EVERYTHING, RecordedProgress(), host.environ(tmp_path), recorded)
    assert {path for path in host.requests if "sha256" in path.lower() or "/api/" in path} == set()


def test_recorded_checksums_are_of_files_that_are_downloaded() -> None:
    """Those of other versions would say that something is recorded when nothing is."""
    platforms = [Platform(system, processor) for system in ("linux", "darwin") for processor in ("amd64", "arm64")]
    releases = (*RELEASES, *TEST_RELEASES)
    programs = [program for release in releases for program in release.programs]
    found = [artefact(program, platform, Origins()) for program in programs for platform in platforms]
    assert read_checksums().keys() <= {each.url for each in found if each is not None}


def test_a_missing_file_leads_to_the_next_source(host: ReleaseHost, tmp_path: Path) -> None:
    host.files.clear()
    progress = RecordedProgress()
    with pytest.raises(BinaryUnavailable, match=r"(?s)answered 404.*Building: Go is not installed.*go\.dev"):
        ensure_binaries(["etcd"], progress, {**host.environ(tmp_path), "GPU_CONTROL_PLANE_GO": "/no/such/go"})
    assert progress.notes == [f"No download of etcd: {host.address}{_checksums()} answered 404 Not Found."]


def test_a_missing_checksum_is_no_download(host: ReleaseHost, tmp_path: Path) -> None:
    host.files[_checksums()] = b"0000  another-file\n"
    with pytest.raises(BinaryUnavailable, match="has no SHA-256 for etcd-"):
        ensure_binaries(["etcd"], RecordedProgress(), {**host.environ(tmp_path), "GPU_CONTROL_PLANE_GO": "/no/such/go"})


def test_a_truncated_download_is_not_kept(host: ReleaseHost, tmp_path: Path) -> None:
    path = next(path for path in host.files if path.endswith("/kube-scheduler"))
    host.announced[path] = len(host.files[path]) + 1000
    with pytest.raises(BinaryUnavailable, match="ended "):
        ensure_binaries(
            ["kube-scheduler"], RecordedProgress(), {**host.environ(tmp_path), "GPU_CONTROL_PLANE_GO": "/no/such/go"}
        )
    assert _files(tmp_path) == []


def test_leftovers_of_a_killed_download_are_swept_away(host: ReleaseHost, tmp_path: Path) -> None:
    leftover = tmp_path / "bin" / ".partial-killed"
    leftover.mkdir(parents=True)
    (leftover / "kwok").write_bytes(content_of("kwok")[:5])
    ensure_binaries(["kwok"], RecordedProgress(), host.environ(tmp_path))
    assert not leftover.exists()


def test_only_what_is_published_is_looked_for() -> None:
    mac = Platform("darwin", "arm64")
    assert artefact("kube-apiserver", mac, Origins()) is None
    assert artefact("containerd", mac, Origins()) is None
    kubectl = artefact("kubectl", mac, Origins())
    assert kubectl
    assert kubectl.url == f"https://dl.k8s.io/{KUBERNETES.version}/bin/darwin/arm64/kubectl"


def test_official_addresses() -> None:
    linux = Platform("linux", "amd64")
    programs = ("kubelet", "etcd", "kwok", "ctr", "coredns", "helm", "kubeconform")
    found = {program: artefact(program, linux, Origins()) for program in programs}
    assert {program: published.url for program, published in found.items() if published} == {
        "kubelet": f"https://dl.k8s.io/{KUBERNETES.version}/bin/linux/amd64/kubelet",
        "etcd": f"https://github.com/etcd-io/etcd/releases/download/{ETCD.version}/etcd-{ETCD.version}-linux-amd64.tar.gz",
        "kwok": f"https://github.com/kubernetes-sigs/kwok/releases/download/{KWOK.version}/kwok-linux-amd64",
        "ctr": "https://github.com/containerd/containerd/releases/download"
        f"/{CONTAINERD.version}/containerd-{CONTAINERD.version[1:]}-linux-amd64.tar.gz",
        "coredns": "https://github.com/coredns/coredns/releases/download"
        f"/{COREDNS.version}/coredns_{COREDNS.version[1:]}_linux_amd64.tgz",
        "helm": f"https://get.helm.sh/helm-{HELM.version}-linux-amd64.tar.gz",
        "kubeconform": "https://github.com/yannh/kubeconform/releases/download"
        f"/{KUBECONFORM.version}/kubeconform-linux-amd64.tar.gz",
    }


def _path(url: str) -> str:
    return "/" + url.split("/", 3)[3]


def _checksums() -> str:
    return f"/etcd-io/etcd/releases/download/{ETCD.version}/SHA256SUMS"


def _files(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() and path.name != ".lock"]
