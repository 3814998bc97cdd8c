"""The controller may be killed at every single write: the end state is the same."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fault_proxy import Request
from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.installation.policies import install_policies
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.progress import Quiet
from integration.flow.env import FlowEnv, end_state, flow_env, is_product_write, pool_of
from waiting import until_async

CARDS = tuple(f"node-a-0000-{bus}-00-0" for bus in ("18", "2a"))


async def whole_flow(env: FlowEnv, restart: Callable[[], Awaitable[None]]) -> object:
    """From nothing to pooled, used, moved and released; `restart` is called while waiting for each flow_env."""

    async def until_reached(check: Callable[[], Awaitable[bool]]) -> None:
        async def look() -> bool:
            await restart()
            return await check()

        await until_async(look, within=240)

    async def pooled(first: str | None, second: str | None) -> bool:
        devices = await env.devices()
        no_card_in_two_pools(await env.states())
        return len(devices) == 2 and [pool_of(devices[card]) for card in CARDS] == [first, second]

    async def running() -> bool:
        return await env.phase("worker") == "Running"

    async def settled() -> bool:
        states = await env.states()
        plugin = states["node-a"].status.plugin
        pool = await env.pool("research")
        units = pool.status.units
        return bool(
            plugin
            and plugin.observed_generation == states["node-a"].metadata.generation
            and units
            and (units.total, units.used) == (2, 1)
        )

    await env.add_nodes("node-a")
    await env.add_pool("training")
    await env.add_pool("research", assignment={"autoApproveSelector": {"matchLabels": {"none": "such"}}})
    await until_reached(lambda: pooled(None, None))
    for card in CARDS:
        await env.approve(card, "training")
    await until_reached(lambda: pooled("training", "training"))
    await env.start_pod("worker", "training")
    await until_reached(running)
    for card in CARDS:
        await env.approve(card, "research")
    await until_reached(lambda: _one_moved(env))
    await env.end_pod("worker")
    await until_reached(lambda: pooled("research", "research"))
    await env.start_pod("other", "research")
    await until_reached(settled)
    return end_state(await env.devices(), await env.states())


async def _one_moved(env: FlowEnv) -> bool:
    """The card in use stays where it is, the other one moves."""
    pools = sorted(pool_of(device) or "" for device in (await env.devices()).values())
    return pools == ["research", "training"]


def no_card_in_two_pools(states: object) -> None:
    assert isinstance(states, dict)
    for state in states.values():
        ordered = [order.inventory_id for order in state.spec.assignments]
        assert len(ordered) == len(set(ordered))
        served = [
            card
            for resource in (state.status.plugin.resources if state.status.plugin else ())
            for card in resource.inventory_ids
        ]
        assert len(served) == len(set(served)), "a card is offered twice"


class WriteKiller:
    """Kills the controller at every single write: first before it reaches the server, then right after it landed."""

    def __init__(self, env: FlowEnv) -> None:
        self._scene = env
        self._before = True
        self._marked: Request | None = None
        self.kills = 0
        env.proxy.on_request = self._on_request
        env.proxy.on_answer = self._on_answer

    async def _on_request(self, request: Request) -> None:
        if not is_product_write(request):
            return
        if self._marked is not None:
            # Another write of the same process, which is being killed.
            raise asyncio.CancelledError
        self._marked = request
        if self._before:
            self._scene.kill_controller()
            self.kills += 1
            raise asyncio.CancelledError

    async def _on_answer(self, request: Request) -> None:
        if request is self._marked:
            self._scene.kill_controller()
            self.kills += 1

    async def restart(self) -> None:
        """Start the controller again once it is dead; the next one dies at its first write, on the other side of it."""
        if self._marked is not None:
            await self._scene.controller_ended()
            self._before = not self._before
            self._marked = None
            await self._scene.start_controller()


@pytest.mark.timeout(900)
async def test_killed_at_every_write_it_ends_where_it_would_have_ended(env: FlowEnv, tmp_path: Path) -> None:
    undisturbed = await _undisturbed(tmp_path / "undisturbed")
    await env.start_controller()
    killer = WriteKiller(env)
    disturbed = await whole_flow(env, killer.restart)
    assert _without_choice(disturbed) == _without_choice(undisturbed)
    # Each card alone takes seven writes of the controller on this way; fewer kills would mean that some were missed.
    assert killer.kills > 30


async def _undisturbed(folder: Path) -> object:
    async def nothing() -> None:
        return

    cluster = Cluster(folder / "cluster", ensure_binaries([*Component]), Settings(), Quiet())
    await asyncio.to_thread(cluster.start)
    try:
        await asyncio.to_thread(install_crds, cluster.kubeconfig)
        await asyncio.to_thread(install_policies, cluster.kubeconfig)
        async with flow_env(cluster, folder) as env:
            await env.start_controller()
            return await whole_flow(env, nothing)
    finally:
        await asyncio.to_thread(cluster.stop)


def _without_choice(end: object) -> object:
    """Which of the two cards the pod got is the kubelet's choice, so the order in which they moved may differ."""
    assert isinstance(end, dict)
    return {"devices": sorted(end["devices"].values()), "orders": end["orders"]}
