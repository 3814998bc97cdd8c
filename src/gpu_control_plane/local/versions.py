"""The one place where versions are pinned. `gomodules/` repeats them for Go, and a test holds the two together."""

import re
from typing import NamedTuple

import msgspec


class Release(msgspec.Struct, frozen=True):
    """Programs that are published, downloaded, built and versioned together."""

    name: str
    version: str
    programs: tuple[str, ...]

    @property
    def minor(self) -> "Minor":
        found = minor_in(self.version)
        if found is None:
            raise ValueError(f"{self.version!r} is not a version")
        return found


class Minor(NamedTuple):
    """As much of a version as compatibility depends on."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


KUBERNETES = Release(
    name="kubernetes",
    version="v1.36.3",
    programs=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet", "kube-proxy"),
)
ETCD = Release(name="etcd", version="v3.7.3", programs=("etcd",))
KWOK = Release(name="kwok", version="v0.8.0", programs=("kwok",))
CONTAINERD = Release(name="containerd", version="v2.4.2", programs=("containerd", "containerd-shim-runc-v2", "ctr"))
COREDNS = Release(name="coredns", version="v1.13.1", programs=("coredns",))

HELM = Release(name="helm", version="v3.22.0", programs=("helm",))
KUBECONFORM = Release(name="kubeconform", version="v0.8.0", programs=("kubeconform",))
NFD = Release(name="node-feature-discovery", version="v0.19.0", programs=("nfd-master", "nfd-worker"))
KUBE_STATE_METRICS = Release(name="kube-state-metrics", version="v2.15.0", programs=("kube-state-metrics",))

DEX = Release(name="dex", version="v2.45.1", programs=("dex",))

RELEASES = (KUBERNETES, ETCD, KWOK, CONTAINERD, COREDNS)
TEST_RELEASES = (HELM, KUBECONFORM, NFD, DEX)
"""Only for the tests of the Helm chart and of signing in to the console."""
MONITORING_RELEASES = (KUBE_STATE_METRICS,)
"""Only for the tests of dashboards and alerts."""

NODE_PROGRAMS = (*CONTAINERD.programs, "kubelet")
"""What only a real node needs, and only Linux has."""
SERVICE_PROGRAMS = (*COREDNS.programs, "kube-proxy")
"""What real nodes need in addition for Services and DNS."""

_VERSION = re.compile(r"\bv?(\d+)\.(\d+)\.\d+[-+.0-9A-Za-z]*")


def release_of(program: str) -> Release:
    """The release a program belongs to."""
    for release in (*RELEASES, *TEST_RELEASES, *MONITORING_RELEASES):
        if program in release.programs:
            return release
    known = ", ".join(program for release in RELEASES for program in release.programs)
    raise ValueError(f"{program!r} is not a program of the local cluster; it has {known}")


def version_in(text: str) -> str | None:
    """The first version in what a program prints about itself, always with a leading `v`."""
    found = _VERSION.search(text)
    return f"v{found[0].removeprefix('v')}" if found else None


def minor_in(text: str) -> Minor | None:
    found = _VERSION.search(text)
    return Minor(int(found[1]), int(found[2])) if found else None
