"""The API server may be gone while cards are pooled: controller and fleet go on by themselves."""

import asyncio
import signal

import pytest

from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.local import Component
from integration.flow.env import FlowEnv, units_of

# Scheduler and KWOK reconnect up to a minute after an outage, one waiting for the other; ours are back long before.
_OTHERS_SECONDS = 240

CARDS = tuple(f"node-a-0000-{bus}-00-0" for bus in ("18", "2a"))


@pytest.mark.timeout(600)
async def test_the_api_server_may_be_gone_for_twenty_seconds_in_the_middle(env: FlowEnv) -> None:
    await env.start_controller()
    await env.add_nodes("node-a")
    await env.add_pool("training")
    await env.devices_known(2)
    await env.approve(CARDS[0], "training")
    await asyncio.to_thread(env.cluster.stop_component, Component.APISERVER, signal.SIGKILL)
    await asyncio.sleep(20)  # the outage itself
    await asyncio.to_thread(env.cluster.start_component, Component.APISERVER)
    await env.approve(CARDS[1], "training")
    for card in CARDS:
        await env.device_is(card, lambda device: device.status.state is DeviceState.ASSIGNED)
    await env.start_pod("worker", "training", cards=2)
    await env.pod_is("worker", "Running", within=_OTHERS_SECONDS)
    await env.pool_is("training", lambda pool: units_of(pool).used == 2)
