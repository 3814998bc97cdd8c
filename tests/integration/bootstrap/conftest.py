"""The shared API server with our CRDs in it, and a GPU node whose Pods the test creates."""

import secrets
from collections.abc import AsyncIterator

import pytest

from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client
from integration.bootstrap.operands import Operands, allow_pods
from integration.flow.conftest import env, whole_cluster
from integration.inventory.machines import Machine

__all__ = ["env", "whole_cluster"]


@pytest.fixture
async def machine(client: Client) -> Machine:
    """A Node of its own for each test, with a kubelet that answers."""
    await install(client)
    await allow_pods(client)
    made = Machine(client, f"machine-{secrets.token_hex(3)}")
    await made.register(ready=True)
    return made


@pytest.fixture
async def operands(client: Client, machine: Machine) -> AsyncIterator[Operands]:
    made = Operands(client, machine.name)
    yield made
    await made.stop_all()
