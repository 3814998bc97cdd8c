"""Helm and kubeconform, and a cluster with the chart installed in it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpu_control_plane.local import Binaries, Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.progress import Quiet
from gpu_control_plane.local.versions import HELM, KUBECONFORM
from helm.chart import NAMESPACE, OPERANDS, WATCHED_FOR_RAY, Helm
from helm.installed import Installed


@pytest.fixture(scope="session")
def tools() -> Binaries:
    return ensure_binaries([*HELM.programs, *KUBECONFORM.programs])


@pytest.fixture(scope="session")
def helm(tools: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tools.path("helm"), tmp_path_factory.mktemp("helm-home"))


@pytest.fixture(scope="session")
def kubeconform(tools: Binaries) -> Path:
    return tools.path("kubeconform")


def cannot(why: str) -> None:
    """Skip with the reason; in CI that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="session")
def installed(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A cluster with the release in it, for tests that leave it as it is."""
    with cluster_for(helm, tmp_path_factory.mktemp("installed")) as made:
        made.add_nodes()
        # Pods run no programs, so no test waits for what an agent would find.
        made.install(
            {
                "agent": {"labels": True, "validator": {"enabled": False}},
                "discovery": {"enabled": True},
                "console": {"enabled": True},
            }
        )
        yield made


@pytest.fixture
def empty_cluster(helm: Helm, tmp_path: Path) -> Iterator[Installed]:
    """A cluster without the release, and with nodes for it."""
    with cluster_for(helm, tmp_path) as made:
        made.add_nodes()
        yield made


@pytest.fixture(scope="session")
def api_server(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """An API server with the namespaces and nothing else in it: dry runs leave no trace."""
    with cluster_for(helm, tmp_path_factory.mktemp("bare"), Component.ETCD, Component.APISERVER) as made:
        for namespace in (NAMESPACE, OPERANDS, *WATCHED_FOR_RAY):
            made.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        yield made


@contextmanager
def cluster_for(helm: Helm, folder: Path, *parts: Component) -> Iterator[Installed]:
    components = parts or tuple(Component)
    binaries = ensure_binaries([*components, "kubectl"])
    with Cluster(folder / "cluster", binaries, Settings(components=components), Quiet()) as cluster:
        yield Installed(cluster, helm, binaries.path("kubectl"))
