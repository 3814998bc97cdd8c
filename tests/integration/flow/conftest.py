"""A control plane with scheduler and pod life for each module of the flow, with the API installed."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.installation.policies import install_policies
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.progress import Quiet
from integration.flow.env import FlowEnv, flow_env


@pytest.fixture
def whole_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Every component, and nothing in it but our CRDs."""
    with Cluster(tmp_path / "cluster", ensure_binaries([*Component]), Settings(), Quiet()) as cluster:
        install_crds(cluster.kubeconfig)
        install_policies(cluster.kubeconfig)
        yield cluster


@pytest.fixture
async def env(whole_cluster: Cluster, tmp_path: Path) -> AsyncIterator[FlowEnv]:
    """The fleet runs; the test starts the controller."""
    async with flow_env(whole_cluster, tmp_path) as made:
        yield made
    await asyncio.sleep(0)
