"""The API server may be gone in the middle of everything: it heals by itself."""

import asyncio
import signal

import pytest

from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.local import Component
from integration.flow.stage import Stage, units_of

# Scheduler and KWOK look again up to a minute after an outage, one waiting for the other: ours are back long before.
_FOR_OTHERS = 240

CARDS = tuple(f"node-a-0000-{bus}-00-0" for bus in ("18", "2a"))


@pytest.mark.timeout(600)
async def test_the_api_server_may_be_gone_for_twenty_seconds_in_the_middle(scene: Stage) -> None:
    await scene.start_controller()
    await scene.add_nodes("node-a")
    await scene.add_pool("training")
    await scene.devices_known(2)
    await scene.approve(CARDS[0], "training")
    await asyncio.to_thread(scene.cluster.stop_component, Component.APISERVER, signal.SIGKILL)
    await asyncio.sleep(20)  # the outage itself
    await asyncio.to_thread(scene.cluster.start_component, Component.APISERVER)
    await scene.approve(CARDS[1], "training")
    for card in CARDS:
        await scene.device_is(card, lambda device: device.status.state is DeviceState.ASSIGNED)
    await scene.start_pod("worker", "training", cards=2)
    await scene.pod_is("worker", "Running", within=_FOR_OTHERS)
    await scene.pool_is("training", lambda pool: units_of(pool).used == 2)
