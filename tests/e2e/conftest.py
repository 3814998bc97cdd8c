"""A cluster with a real node for each module: a real kubelet, a real containerd, containers that run."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import pytest

from e2e.cluster_env import COMPONENTS, ClusterEnv
from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.local import Binaries, Cluster, Component, RealNode, Settings, ensure_binaries
from gpu_control_plane.local.logs import tail
from gpu_control_plane.local.node.requirements import NodeImpossible, system_programs
from gpu_control_plane.local.versions import NODE_PROGRAMS, SERVICE_PROGRAMS

LONG_NAME = f"gpu-{'as-long-as-some-home-folders-' * 4}"
"""Longer than the path of a socket may be."""

_running: list[ClusterEnv] = []


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """Every program, on a machine that can run a node. In CI, one that cannot is an error and no excuse."""
    _require_system()
    return ensure_binaries([*COMPONENTS, "kubectl", *NODE_PROGRAMS])


def _require_system(*, services: bool = False) -> None:
    try:
        system_programs(services=services)
    except NodeImpossible as why:
        if os.environ.get("CI") == "true":
            pytest.fail(str(why))
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def service_binaries(binaries: Binaries) -> Binaries:
    """Those, and what services on real nodes need."""
    _require_system(services=True)
    return ensure_binaries([*binaries.programs, *SERVICE_PROGRAMS])


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for sockets: their paths may not be long, and those that pytest chooses are."""
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def start_cluster_env(binaries: Binaries, request: pytest.FixtureRequest) -> Iterator[Callable[..., ClusterEnv]]:
    """Start a cluster with these real nodes and our API. It is stopped and removed at the end, whatever happens.

    With `services=True`, Services work on the nodes, by address and by name. With `api=False` our API is not there yet.
    `flags` are added to those of the components.
    """
    raised: list[ClusterEnv] = []

    def start(
        *nodes: str,
        services: bool = False,
        api: bool = True,
        flags: dict[Component, tuple[str, ...]] | None = None,
    ) -> ClusterEnv:
        programs: Binaries = request.getfixturevalue("service_binaries") if services else binaries
        folder = Path(tempfile.mkdtemp(prefix=LONG_NAME))
        settings = Settings(components=COMPONENTS, nodes=nodes, services=services, flags=flags or {})
        cluster_env = ClusterEnv(Cluster(folder, programs, settings), programs)
        raised.append(cluster_env)
        _running.append(cluster_env)
        cluster_env.cluster.start()
        if api:
            install_crds(cluster_env.cluster.kubeconfig)
        cluster_env.wait_for_service_account()
        return cluster_env

    yield start
    for cluster_env in raised:
        strike(cluster_env)


def strike(cluster_env: ClusterEnv) -> None:
    """Stop a cluster and remove it."""
    cluster_env.cluster.stop()
    shutil.rmtree(cluster_env.cluster.folder, ignore_errors=True)
    if cluster_env in _running:
        _running.remove(cluster_env)


@pytest.fixture(scope="module")
def cluster_env(start_cluster_env: Callable[..., ClusterEnv]) -> Iterator[ClusterEnv]:
    """A cluster with one real node, `node-a`, for this module alone."""
    cluster_env = start_cluster_env("node-a")
    yield cluster_env
    strike(cluster_env)


@pytest.fixture(scope="module")
def node(cluster_env: ClusterEnv) -> RealNode:
    return cluster_env.node


@pytest.fixture
async def client(cluster_env: ClusterEnv) -> AsyncIterator[Client]:
    """An administrator's client."""
    async with Client(load_config(cluster_env.cluster.kubeconfig)) as client:
        yield client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure is told with the ends of the nodes' logs, and of a controller's that runs there."""
    report = yield
    if report.failed:
        for cluster_env in _running:
            for node in cluster_env.cluster.nodes.values():
                for log in (*sorted(node.logs.glob("*.log")), *node.logs.glob("pods/*_controller_*/*/*.log")):
                    title = f"the end of {node.name}/{log.relative_to(node.logs)}"
                    report.sections.append((title, tail(log)))
    return report
