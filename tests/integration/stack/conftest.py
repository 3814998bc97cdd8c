"""One control plane with scheduler and simulated kubelets, and one operator, for all tests of the stack.

Each test leaves the cluster empty. All run on one event loop, since the operator runs on it from the first to the last.
"""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.progress import Quiet
from integration.stack.operator_env import OperatorEnv


@pytest.fixture(scope="session")
def lively_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("stack")
    with Cluster(folder / "cluster", ensure_binaries([*Component]), Settings(), Quiet()) as cluster:
        install_crds(cluster.kubeconfig)
        yield cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def house(lively_cluster: Cluster) -> AsyncIterator[OperatorEnv]:
    """An empty cluster in which the operator runs."""
    async with OperatorEnv.open(lively_cluster) as env:
        yield env


@pytest_asyncio.fixture(loop_scope="session")
async def env(house: OperatorEnv) -> AsyncIterator[OperatorEnv]:
    await house.resume()
    yield house
    await house.clear()
