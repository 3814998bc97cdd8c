"""A namespace with a Ray of its own for each test."""

from collections.abc import AsyncIterator

import pytest

from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client
from integration.ray.jobs.play import Play
from ray_dashboard import FakeDashboard


@pytest.fixture
async def play(client: Client, namespace: str) -> AsyncIterator[Play]:
    await install(client)
    async with FakeDashboard() as fake:
        yield Play(client, namespace, fake)
