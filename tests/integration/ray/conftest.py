"""The operator of Ray on the shared API server, in a namespace of its own for each test."""

from collections.abc import AsyncIterator

import pytest

from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client
from integration.bootstrap.operands import allow_pods
from integration.ray.ray_env import RayEnv, ray_env

_installed: set[str] = set()
"""API servers that have our CRDs: applying them for each test takes longer than most of these tests."""


@pytest.fixture
async def ray(client: Client, namespace: str) -> AsyncIterator[RayEnv]:
    """The operator runs already; a test that wants it otherwise stops it."""
    if client.config.server not in _installed:
        await install(client)
        _installed.add(client.config.server)
    await allow_pods(client, namespace)
    async with ray_env(client, namespace) as env:
        await env.start_operator()
        yield env
