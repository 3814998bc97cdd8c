"""A namespace with a Ray of its own for each test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client
from gpu_control_plane.local import Cluster
from integration.conftest import Namespace
from integration.ray.jobs.job_env import RayJobEnv
from ray_dashboard import FakeDashboard

_INSTALLED: set[str] = set()


@pytest.fixture
async def served(client: Client, api_server: Cluster) -> Client:
    """A client of an API server that has the CRDs."""
    if str(api_server.kubeconfig) not in _INSTALLED:
        await install(client)
        _INSTALLED.add(str(api_server.kubeconfig))
    return client


@pytest.fixture
async def envs(served: Client) -> AsyncIterator[Callable[[], Awaitable[RayJobEnv]]]:
    """Makes as many namespaces as a test asks for."""
    async with AsyncExitStack() as stack:

        async def make() -> RayJobEnv:
            made = await served.create(Namespace, {"metadata": {"generateName": "test-ray-jobs-"}})
            return RayJobEnv(served, made.name, await stack.enter_async_context(FakeDashboard()))

        yield make


@pytest.fixture
async def env(envs: Callable[[], Awaitable[RayJobEnv]]) -> RayJobEnv:
    return await envs()
