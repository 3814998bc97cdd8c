"""Simulated nodes with their agents, a real scheduler and Pods that come and go: conditions follow them."""

import asyncio
from datetime import timedelta

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane import bootstrap
from gpu_control_plane.agent.fleet.machines import edit_card
from gpu_control_plane.agent.simulated.machine import lose, pull
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.api.nodefeature import NodeFeature, feature_name, read_cards, read_facts
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.local import Component
from gpu_control_plane.pools.controller import build as build_pools
from integration.bootstrap.operands import Operands, allow_pods
from integration.flow.env import FlowEnv, pool_of
from integration.inventory.machines import DEFAULTS, Machine, controllers
from integration.kinds import Pod
from waiting import until_async

QUICK = bootstrap.Settings(loss_after=timedelta(seconds=4), return_after=timedelta(seconds=1))
NODES = ("node-a", "node-b", "node-c")


async def reason_of(env: FlowEnv, node: str, kind: NodeCondition) -> str | None:
    state = (await env.states()).get(node)
    held = find(state.status.conditions, kind) if state is not None else None
    return held.reason if held is not None else None


async def until_condition(env: FlowEnv, node: str, kind: NodeCondition, reason: Reason) -> None:
    async def holds() -> bool:
        return await reason_of(env, node, kind) == reason

    await until_async(holds, within=120, saying=f"{kind}: {reason} on {node}")


async def test_a_fleet_is_ready_and_a_node_without_its_agent_is_not(env: FlowEnv) -> None:
    ready = NodeCondition.READY_FOR_POOLING
    await allow_pods(env.client)
    await env.add_nodes(*NODES)
    # It would collect the agents' pods, whose DaemonSet is a mere reference here, and delete them.
    await asyncio.to_thread(env.cluster.stop_component, Component.CONTROLLER_MANAGER)
    async with controllers(env.proxy, DEFAULTS, QUICK):
        for node in NODES:
            await until_condition(env, node, ready, Reason.READY)
            # The agent reports itself what the bus shows, card by card.
            feature = await env.client.get(NodeFeature, feature_name(node), NAMESPACE)
            places = read_facts(feature).bus
            assert places == tuple(card.pci for card in read_cards(feature))
        agents = {node: Operands(env.client, node) for node in NODES}
        for agent in agents.values():
            await agent.create("agent")

        async def running() -> bool:
            names = (agents[node].name("agent") for node in NODES)
            pods = [await env.client.get(Pod, name, NAMESPACE) for name in names]
            return all(pod.status.phase == "Running" for pod in pods)

        await until_async(running, within=120, saying="KWOK runs the pods")
        await agents["node-b"].stop("agent")
        await until_condition(env, "node-b", ready, Reason.AGENT_NOT_READY)
        for node in ("node-a", "node-c"):
            await until_condition(env, node, ready, Reason.READY)
        await agents["node-b"].create("agent")
        await until_condition(env, "node-b", ready, Reason.READY)

        # A card that falls off the bus is a matter of health; one that is pulled is forgotten. The node stays ready.
        await edit_card(env.client, "node-c-0000-18-00-0", lose)
        await edit_card(env.client, "node-a-0000-18-00-0", pull)

        async def pulled() -> bool:
            state = (await env.states())["node-a"]
            return state.status.device_count == 1 and "node-a-0000-18-00-0" not in await env.devices()

        await until_async(pulled, within=120)
        assert await reason_of(env, "node-a", NodeCondition.INVENTORY_COMPLETE) == Reason.INVENTORY_SYNCED
        assert await reason_of(env, "node-a", ready) == Reason.READY


async def test_nothing_is_issued_of_a_node_whose_inventory_is_incomplete(env: FlowEnv) -> None:
    """Node Feature Discovery counts a card more than the agent of node-b shows: a pool that takes all it can get takes
    the cards of node-a, and those of node-b once both agree."""
    disputed = Machine(env.client, "node-b")
    await disputed.counted_by_nfd(NAMESPACE, 3)
    await env.add_pool("training", assignment={"requireAnnotation": False})
    await env.add_nodes("node-a", "node-b")

    async def taken(node: str) -> list[str | None]:
        return [pool_of(one) for one in (await env.devices()).values() if one.spec.node_name == node]

    async def all_of(node: str) -> bool:
        return await taken(node) == ["training"] * 2

    async with controllers(env.proxy, DEFAULTS, QUICK, beside=build_pools):
        await until_async(lambda: all_of("node-a"), within=120)
        await until_condition(env, "node-b", NodeCondition.INVENTORY_COMPLETE, Reason.BUS_DISAGREES)
        await env.devices_known(4)
        state = (await env.states())["node-b"]
        assert await taken("node-b") == [None, None]
        assert state.spec.assignments == ()
        await disputed.counted_by_nfd(NAMESPACE, 2)
        await until_async(lambda: all_of("node-b"), within=120)
