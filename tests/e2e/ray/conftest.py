"""One cluster for each module, with a node, cards, the operator and the image of Ray."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from images.errors import ImageError

from e2e.cluster_env import ClusterEnv
from e2e.conftest import strike
from e2e.ray.image.recipe import prepare
from e2e.ray.ray_env import RayEnv, ray_env_on
from gpu_control_plane.local.platforms import this_platform


@pytest.fixture(scope="session")
def ray_image() -> Path:
    """The image of Ray. Where it cannot be made tests are skipped, which only CI holds against us."""
    try:
        return prepare(this_platform().arch)
    except ImageError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def env(ray_image: Path, start_cluster_env: Callable[..., ClusterEnv]) -> Iterator[RayEnv]:
    cluster_env = start_cluster_env("node-a", services=True)
    with ray_env_on(cluster_env, ray_image) as env:
        yield env
    strike(cluster_env)


@pytest.fixture(scope="module")
def long_run(pytestconfig: pytest.Config) -> None:
    """What takes minutes, and so is not part of `make test`."""
    if not pytestconfig.getoption("--real-ray"):
        pytest.skip("takes minutes: `make test-long` runs it")
