"""Nodes of a pool carry its taints, on a real API server, and lose them with the last card of the pool."""

from gpu_control_plane.api import GPUPool
from gpu_control_plane.api.node import Node
from integration.flow.env import FlowEnv, pool_of
from waiting import until_async

CARD = "node-a-0000-18-00-0"
TAINTS = [{"key": "example.com/gpu", "value": "training", "effect": "NoSchedule"}]


async def taints(env: FlowEnv) -> set[str]:
    node = await env.client.get(Node, "node-a")
    return {f"{taint.key}={taint.value}:{taint.effect}" for taint in node.spec.taints}


async def test_taints_come_and_go_with_the_pool(env: FlowEnv) -> None:
    await env.start_controller()
    await env.add_nodes("node-a", cards=1)
    await env.devices_known(1)
    before = await taints(env)
    ours = {"example.com/gpu=training:NoSchedule"}

    async def tainted(expected: set[str]) -> bool:
        return await taints(env) == before | expected

    await env.add_pool("training", scheduling={"taints": TAINTS})
    await env.approve(CARD, "training")
    await until_async(lambda: tainted(ours), saying="the taint of the pool")
    await env.client.patch(GPUPool, "training", {"spec": {"scheduling": {"taints": []}}})
    await until_async(lambda: tainted(set()), saying="no taint: it left the spec")
    await env.client.patch(GPUPool, "training", {"spec": {"scheduling": {"taints": TAINTS}}})
    await until_async(lambda: tainted(ours))
    # A person's own taint stays, also when it equals one that the pool asks for later.
    node = await env.client.get(Node, "node-a")
    mine = {"key": "example.com/mine", "effect": "NoSchedule"}
    kept = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.spec.taints]
    await env.client.patch(Node, "node-a", {"spec": {"taints": [*kept, mine]}})
    await env.client.patch(GPUPool, "training", {"spec": {"scheduling": {"taints": [*TAINTS, mine]}}})
    await env.approve(CARD, None)
    await env.device_is(CARD, lambda device: pool_of(device) is None)
    await until_async(lambda: tainted({"example.com/mine=:NoSchedule"}), saying="the person's taint alone")

    async def forgotten() -> bool:
        return not (await env.states())["node-a"].status.taints

    await until_async(forgotten, saying="no taint on record")
