"""An uninstall takes off Nodes what our agents wrote there, and leaves what NVIDIA's programs write."""

import secrets
from collections.abc import AsyncIterator

import pytest

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node
from gpu_control_plane.installation.uninstall import clean_up
from gpu_control_plane.kube import Client

FEATURES = {"nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/gpu.count": "8"}
OURS = {Label.GPU_PRESENT.value: "true"}


@pytest.fixture
async def nodes(client: Client) -> AsyncIterator[dict[str, str]]:
    """Names of nodes with the same labels: by our agent, by another program beside our agent, without our agent."""
    made = {who: f"labelled-{secrets.token_hex(3)}" for who in ("agent", "other", "none")}
    for who, name in made.items():
        await client.create(Node, {"metadata": {"name": name, "labels": FEATURES | OURS}})
        if who != "none":
            await client.create(GPUNodeState, {"metadata": {"name": name}, "spec": {}})
            status = {"agent": {"labels": who == "agent"}}
            await client.patch(GPUNodeState, name, {"status": status}, subresource="status")
    yield made
    for who, name in made.items():
        await client.delete(Node, name)
        if who != "none":
            await client.delete(GPUNodeState, name)


async def test_labels_of_features_are_taken_off_where_the_agent_wrote_them(
    client: Client, nodes: dict[str, str]
) -> None:
    await clean_up(client, feature_labels=True, crds=False, timeout=0, operand_namespace="", ray=False, report=print)
    left = {who: (await client.get(Node, name)).metadata.labels for who, name in nodes.items()}
    kept = {who: {key for key in labels if key in FEATURES | OURS} for who, labels in left.items()}
    assert kept == {"agent": set(), "other": set(FEATURES), "none": set(FEATURES)}
