"""One cluster for each module, with a node, cards, the operator and the image of Ray."""

from collections.abc import Callable, Iterator

import pytest

from e2e.cluster_env import ClusterEnv
from e2e.conftest import strike
from e2e.ray.ray_env import RayEnv, ray_env_on


@pytest.fixture(scope="module")
def env(start_cluster_env: Callable[..., ClusterEnv]) -> Iterator[RayEnv]:
    cluster_env = start_cluster_env("node-a", services=True)
    with ray_env_on(cluster_env) as env:
        yield env
    strike(cluster_env)


@pytest.fixture(scope="module")
def long_run(pytestconfig: pytest.Config) -> None:
    """What takes minutes, and so is not part of `make test`."""
    if not pytestconfig.getoption("--real-ray"):
        pytest.skip("takes minutes: `make test-long` runs it")
