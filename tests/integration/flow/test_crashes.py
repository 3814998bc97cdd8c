"""The controller may be killed at every single write: the end is the same."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fault_proxy import Request
from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.progress import Quiet
from integration.flow.stage import Stage, is_product_write, picture, pool_of, stage
from waiting import until_async

CARDS = tuple(f"node-a-0000-{bus}-00-0" for bus in ("18", "2a"))


async def whole_flow(scene: Stage, revive: Callable[[], Awaitable[None]]) -> object:
    """From nothing to pooled, used, moved and released; `revive` is called while waiting for each stage."""

    async def reached(check: Callable[[], Awaitable[bool]]) -> None:
        async def look() -> bool:
            await revive()
            return await check()

        await until_async(look, within=240)

    async def pooled(first: str | None, second: str | None) -> bool:
        devices = await scene.devices()
        no_card_in_two_pools(await scene.states())
        return len(devices) == 2 and [pool_of(devices[card]) for card in CARDS] == [first, second]

    async def running() -> bool:
        return await scene.phase("worker") == "Running"

    async def quiet() -> bool:
        states = await scene.states()
        plugin = states["node-a"].status.plugin
        pool = await scene.pool("research")
        units = pool.status.units
        return bool(
            plugin
            and plugin.observed_generation == states["node-a"].metadata.generation
            and units
            and (units.total, units.used) == (2, 1)
        )

    await scene.add_nodes("node-a")
    await scene.add_pool("training")
    await scene.add_pool("research", assignment={"autoApproveSelector": {"matchLabels": {"none": "such"}}})
    await reached(lambda: pooled(None, None))
    for card in CARDS:
        await scene.approve(card, "training")
    await reached(lambda: pooled("training", "training"))
    await scene.start_pod("worker", "training")
    await reached(running)
    for card in CARDS:
        await scene.approve(card, "research")
    await reached(lambda: _one_moved(scene))
    await scene.end_pod("worker")
    await reached(lambda: pooled("research", "research"))
    await scene.start_pod("other", "research")
    await reached(quiet)
    return picture(await scene.devices(), await scene.states())


async def _one_moved(scene: Stage) -> bool:
    """The card in use stays where it is, the other one moves."""
    pools = sorted(pool_of(device) or "" for device in (await scene.devices()).values())
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


class Reaper:
    """Kills the controller at every single write: first before it reaches the server, then right after it landed."""

    def __init__(self, scene: Stage) -> None:
        self._scene = scene
        self._before = True
        self._marked: Request | None = None
        self.kills = 0
        scene.proxy.on_request = self._on_request
        scene.proxy.on_answer = self._on_answer

    async def _on_request(self, request: Request) -> None:
        if not is_product_write(request):
            return
        if self._marked is not None:
            # Another write of the same process, which is as good as dead.
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

    async def revive(self) -> None:
        """Start the controller again once it is dead; the next one dies at its first write, on the other side of it."""
        if self._marked is not None:
            await self._scene.controller_ended()
            self._before = not self._before
            self._marked = None
            await self._scene.start_controller()


@pytest.mark.timeout(900)
async def test_killed_at_every_write_it_ends_where_it_would_have_ended(scene: Stage, tmp_path: Path) -> None:
    undisturbed = await _undisturbed(tmp_path / "undisturbed")
    await scene.start_controller()
    reaper = Reaper(scene)
    disturbed = await whole_flow(scene, reaper.revive)
    assert _without_choice(disturbed) == _without_choice(undisturbed)
    # Each card alone takes seven writes of the controller on this way; fewer kills would mean that some were missed.
    assert reaper.kills > 30


async def _undisturbed(folder: Path) -> object:
    async def nothing() -> None:
        return

    cluster = Cluster(folder / "cluster", ensure_binaries([*Component]), Settings(), Quiet())
    await asyncio.to_thread(cluster.start)
    try:
        await asyncio.to_thread(install_crds, cluster.kubeconfig)
        async with stage(cluster, folder) as scene:
            await scene.start_controller()
            return await whole_flow(scene, nothing)
    finally:
        await asyncio.to_thread(cluster.stop)


def _without_choice(end: object) -> object:
    """Which of the two cards the pod got is the kubelet's choice, so the order in which they moved may differ."""
    assert isinstance(end, dict)
    return {"devices": sorted(end["devices"].values()), "orders": end["orders"]}
