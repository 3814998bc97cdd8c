"""The shared API server with our CRDs in it, and machines to find cards in."""

import secrets

import pytest

from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client
from integration.inventory.machines import Machine


@pytest.fixture
async def machine(client: Client) -> Machine:
    """A Node of its own for each test. Its agent has not reported yet."""
    await install(client)
    made = Machine(client, f"machine-{secrets.token_hex(3)}")
    await made.register()
    return made
