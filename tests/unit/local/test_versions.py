"""Versions are pinned in one place, and read correctly from what programs print."""

import re

import pytest

from gpu_control_plane.local.gobuild import RECIPES, module_folder
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
    MONITORING_RELEASES,
    NFD,
    RELEASES,
    TEST_RELEASES,
    Release,
    minor_in,
    release_of,
    version_in,
)

MODULES = {
    KUBERNETES: "k8s.io/kubernetes",
    ETCD: "go.etcd.io/etcd/server/v3",
    KWOK: "sigs.k8s.io/kwok",
    CONTAINERD: "github.com/containerd/containerd/v2",
    COREDNS: "github.com/coredns/coredns",
    HELM: "helm.sh/helm/v3",
    KUBECONFORM: "github.com/yannh/kubeconform",
    NFD: "sigs.k8s.io/node-feature-discovery",
    KUBE_STATE_METRICS: "k8s.io/kube-state-metrics/v2",
    DEX: "github.com/dexidp/dex",
}
NUMBERED_OTHERWISE = {DEX: "v0.0.0-20260303133905-11d2eeb52b42"}
"""Releases whose tags are no versions to Go, and what stands for them."""


@pytest.mark.parametrize("release", MODULES, ids=lambda release: release.name)
def test_go_modules_pin_the_same_versions(release: Release) -> None:
    go_mod = (module_folder(release) / "go.mod").read_text()
    version = NUMBERED_OTHERWISE.get(release, release.version)
    assert re.search(rf"^\s*(?:require )?{re.escape(MODULES[release])} {version}\b", go_mod, re.MULTILINE)


@pytest.mark.parametrize("release", MODULES, ids=lambda release: release.name)
def test_go_modules_carry_checksums_of_what_they_pin(release: Release) -> None:
    go_sum = (module_folder(release) / "go.sum").read_text()
    assert f"{MODULES[release]} {NUMBERED_OTHERWISE.get(release, release.version)} h1:" in go_sum


def test_staging_modules_are_of_the_kubernetes_version() -> None:
    go_mod = (module_folder(KUBERNETES) / "go.mod").read_text()
    published = KUBERNETES.version.replace("v1.", "v0.")
    assert set(re.findall(r"=> k8s\.io/[-a-z]+ (\S+)", go_mod)) == {published}


def test_every_release_can_be_built() -> None:
    assert set(RECIPES) == {*RELEASES, *TEST_RELEASES, *MONITORING_RELEASES} == set(MODULES)


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("Kubernetes v1.36.3\n", "v1.36.3"),
        ("Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0\n", "v1.32.4-dispatcher"),
        ("etcd Version: 3.7.3\nGit SHA: Not provided (use ./build instead of go build)\n", "v3.7.3"),
        ("kwok version v0.8.0 go1.26.8 (linux/amd64)\n", "v0.8.0"),
        ("containerd github.com/containerd/containerd/v2 v2.4.2 abc\n", "v2.4.2"),
        ("containerd-shim-runc-v2:\n  Version:  v2.4.2\n  Revision: \n  Go version: go1.26.8\n", "v2.4.2"),
        ("CoreDNS-1.13.1\nlinux/amd64, go1.26.8, \n", "v1.13.1"),
        ("v3.22.0+gabcdef0\n", "v3.22.0+gabcdef0"),
        ("nfd-master v0.19.0\n", "v0.19.0"),
        ("command not found", None),
        ("", None),
    ],
)
def test_versions_are_read_from_what_programs_print(printed: str, version: str | None) -> None:
    assert version_in(printed) == version


def test_patch_releases_share_a_minor_version() -> None:
    assert minor_in("v1.36.9") == KUBERNETES.minor
    assert minor_in("v1.35.3") != KUBERNETES.minor


def test_unknown_programs_are_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'dockerd' is not a program.*kube-apiserver"):
        release_of("dockerd")
