"""An uninstall finishes although others write, or delete, what it changes."""

import secrets
from collections.abc import AsyncIterator

import pytest

from fault_proxy import FaultProxy, Request
from gpu_control_plane.api import GPUNodeState, GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.installation.uninstall import clean_up
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.pools.controller import FINALIZER

TAINT = {"key": "gpu.deckhouse.io/training", "value": "training", "effect": "NoSchedule"}
THEIRS = {"key": "team", "value": "ml", "effect": "NoSchedule"}


@pytest.fixture
async def name(client: Client) -> AsyncIterator[str]:
    """Of a node with a taint of ours and one of others, and of a pool that waits for its controller."""
    name = f"hot-{secrets.token_hex(3)}"
    await client.create(Node, {"metadata": {"name": name}, "spec": {"taints": [TAINT, THEIRS]}})
    await client.create(GPUNodeState, {"metadata": {"name": name}, "spec": {}})
    await client.patch(GPUNodeState, name, {"status": {"taints": [TAINT]}}, subresource="status")
    await client.create(
        GPUPool, {"metadata": {"name": name, "finalizers": [FINALIZER, "example.com/mine"]}, "spec": {}}
    )
    yield name
    await client.patch(GPUPool, name, {"metadata": {"finalizers": None}})
    for kind in (GPUPool, GPUNodeState, Node):
        try:
            await client.delete(kind, name)
        except NotFound:
            continue


async def test_what_others_write_meanwhile_is_tried_again(client: Client, name: str) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as late:
        touched: set[str] = set()

        async def touch(request: Request) -> None:
            """As the kubelet does with its Node: once before each object's first patch."""
            for kind in (Node, GPUPool):
                if request.is_write and request.path == kind.resource.path(name=name) and kind.__name__ not in touched:
                    touched.add(kind.__name__)
                    await client.patch(kind, name, {"metadata": {"annotations": {"note": "newer"}}})

        proxy.on_request = touch
        await _clean_up(late)
    assert touched == {"Node", "GPUPool"}
    node, pool = await client.get(Node, name), await client.get(GPUPool, name)
    kept = {each.key for each in node.spec.taints}
    assert "team" in kept
    assert TAINT["key"] not in kept
    assert pool.metadata.finalizers == ("example.com/mine",)
    assert node.metadata.annotations["note"] == pool.metadata.annotations["note"] == "newer"


async def test_a_node_that_leaves_meanwhile_needs_nothing(client: Client, name: str) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as late:

        async def remove(request: Request) -> None:
            if request.is_write and request.path == Node.resource.path(name=name):
                await client.delete(Node, name)

        proxy.on_request = remove
        await _clean_up(late)
    with pytest.raises(NotFound):
        await client.get(Node, name)


async def _clean_up(client: Client) -> None:
    await clean_up(client, feature_labels=False, crds=False, timeout=0, operand_namespace="", ray=False, report=print)
