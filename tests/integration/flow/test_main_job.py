"""The main job, end to end: cards found, pooled, approved, given to a pod, moved, broken, mended and pulled."""

import re

from gpu_control_plane.agent.fleet.machines import edit_card
from gpu_control_plane.agent.simulated.machine import heal, pull, report_xid
from gpu_control_plane.api import GPUPool, PoolPhase
from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.kube import Selection
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.events import Event
from integration.flow.env import FlowEnv, pool_of, units_of
from waiting import until_async

FIRST, SECOND, THIRD, FOURTH = (f"{node}-0000-{bus}-00-0" for node in ("node-a", "node-b") for bus in ("18", "2a"))


async def notes_about(env: FlowEnv, name: str, reason: str, namespace: str = "default") -> list[str]:
    fields = f"regarding.name={name},reason={reason}"
    return [event.note for event in await env.client.list(Event, Selection(namespace, fields=fields))]


async def is_withdrawn(env: FlowEnv, node: str, card: str) -> bool:
    """Whether the card is no longer in the assignments of the node."""
    return all(order.inventory_id != card for order in (await env.states())[node].spec.assignments)


async def test_the_main_job(env: FlowEnv) -> None:
    await env.start_controller()
    await env.add_nodes("node-a", "node-b")
    await env.devices_known(4)
    await env.add_pool("training", deviceSelector={"include": {"products": ["*H200*"]}})
    await env.add_pool("research")

    # A pod waits for a pool without cards, an Event says why, and it runs once a card is approved.
    await env.pool_is("training", lambda pool: pool.status.phase)
    await env.start_pod("eager", "training")
    await until_async(lambda: notes_about(env, "eager", "WaitingForGPU"))
    (note,) = await notes_about(env, "eager", "WaitingForGPU")
    assert re.match("the pool training has no cards; .*: 4 cards wait for approval: `kubectl annotate gpudevice", note)
    assert await env.phase("eager") == "Pending"
    await env.approve(FIRST, "training")
    await env.pod_is("eager", "Running")
    await env.device_is(FIRST, lambda device: [user.pod for user in device.status.used_by] == ["eager"])
    await env.pool_is("training", lambda pool: units_of(pool).used == 1 and pool.status.phase is PoolPhase.READY)

    # Moving a card waits for its pod, and never touches it.
    await env.approve(FIRST, None)
    await env.approve(SECOND, "training")
    await env.device_is(SECOND, lambda device: pool_of(device) == "training")
    assert pool_of((await env.devices())[FIRST]) == "training"
    assert await env.phase("eager") == "Running"
    await env.end_pod("eager")
    await env.device_is(FIRST, lambda device: device.status.state is DeviceState.UNASSIGNED)
    await env.approve(FIRST, "research")
    await env.start_pod("curious", "research")
    await env.pod_is("curious", "Running")

    # A fault takes a card out of service, not out of its pool or away from its pod; mended, it comes back.
    await edit_card(env.client, FIRST, lambda machine, address: report_xid(machine, address, 79))
    await env.device_is(FIRST, lambda device: device.status.state is DeviceState.FAULTED)
    await env.pool_is("research", lambda pool: units_of(pool).faulted == 1)
    assert await env.phase("curious") == "Running"
    await edit_card(env.client, FIRST, heal)
    await env.device_is(FIRST, lambda device: device.status.state is DeviceState.ASSIGNED)
    await until_async(lambda: notes_about(env, FIRST, "GPUDeviceFaulted"), saying="the Event about the fault")

    # A card that is pulled is gone from everywhere.
    await env.approve(THIRD, "training")
    await env.device_is(THIRD, lambda device: pool_of(device) == "training")
    await edit_card(env.client, THIRD, pull)

    async def pulled() -> bool:
        states = await env.states()
        return THIRD not in await env.devices() and not states["node-b"].spec.assignments

    await until_async(pulled)

    # A pool that is deleted waits for its pods and leaves nothing behind.
    await env.client.delete(GPUPool, "research")
    await until_async(lambda: is_withdrawn(env, "node-a", FIRST))
    assert await env.phase("curious") == "Running"
    assert (await env.pool("research")).deleting
    await env.end_pod("curious")

    async def deleted() -> bool:
        try:
            await env.pool("research")
        except NotFound:
            return True
        return False

    await until_async(deleted)
    first = (await env.devices())[FIRST]
    assert (first.status.state, first.metadata.annotations) == (DeviceState.UNASSIGNED, {})
