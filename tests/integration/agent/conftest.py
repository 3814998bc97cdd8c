"""A whole control plane with KWOK, and a simulated fleet beside it; each test has a node of its own."""

import itertools
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.local import Cluster, Component, ensure_binaries
from integration.agent.fleet_env import Fleet, FleetEnv
from integration.conftest import Namespace

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def simulated_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("fleet"), ensure_binaries([*Component])) as cluster:
        install_crds(cluster.kubeconfig)
        yield cluster


@pytest.fixture(scope="session")
def running_fleet(simulated_cluster: Cluster) -> Iterator[Fleet]:
    fleet = Fleet(simulated_cluster.kubeconfig, simulated_cluster.folder / "logs" / "fleet.log")
    yield fleet
    fleet.stop()


@pytest.fixture
def fleet(running_fleet: Fleet) -> Fleet:
    """The fleet, which runs; a test may kill it."""
    running_fleet.start()
    return running_fleet


@pytest.fixture
async def client(simulated_cluster: Cluster) -> AsyncIterator[Client]:
    async with Client(load_config(simulated_cluster.kubeconfig)) as client:
        yield client


@pytest.fixture
async def env(client: Client, fleet: Fleet) -> FleetEnv:
    """A node's name and a namespace that no other test uses; the fleet is running."""
    namespace = await client.create(Namespace, {"metadata": {"generateName": f"test-{secrets.token_hex(2)}-"}})
    return FleetEnv(client, f"gpu-{next(_numbers)}", namespace.name)
