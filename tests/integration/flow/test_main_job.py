"""The main job, end to end: cards found, pooled, approved, given to a pod, moved, broken, mended and pulled."""

from gpu_control_plane.agent.fleet.machines import edit_card
from gpu_control_plane.agent.simulated.machine import heal, pull, report_xid
from gpu_control_plane.api import GPUPool, PoolPhase
from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.kube import Selection
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.events import Event
from integration.flow.stage import Stage, pool_of, units_of
from waiting import until_async

FIRST, SECOND, THIRD, FOURTH = (f"{node}-0000-{bus}-00-0" for node in ("node-a", "node-b") for bus in ("18", "2a"))


async def notes_about(scene: Stage, name: str, reason: str, namespace: str = "default") -> list[str]:
    fields = f"regarding.name={name},reason={reason}"
    return [event.note for event in await scene.client.list(Event, Selection(namespace, fields=fields))]


async def withdrawn(scene: Stage, node: str, card: str) -> bool:
    """Whether the node is no longer told to offer the card."""
    return all(order.inventory_id != card for order in (await scene.states())[node].spec.assignments)


async def test_the_main_job(scene: Stage) -> None:
    await scene.start_controller()
    await scene.add_nodes("node-a", "node-b")
    await scene.devices_known(4)
    await scene.add_pool("training", deviceSelector={"include": {"products": ["*H200*"]}})
    await scene.add_pool("research")

    # A pod waits for a pool without cards, is told why in words, and runs once a card is approved.
    await scene.pool_is("training", lambda pool: pool.status.phase)
    await scene.start_pod("eager", "training")
    await until_async(lambda: notes_about(scene, "eager", "WaitingForGPU"))
    (note,) = await notes_about(scene, "eager", "WaitingForGPU")
    assert note.startswith("the pool training has no cards; 4 cards wait for approval: `kubectl annotate gpudevice")
    assert await scene.phase("eager") == "Pending"
    await scene.approve(FIRST, "training")
    await scene.pod_is("eager", "Running")
    await scene.device_is(FIRST, lambda device: [user.pod for user in device.status.used_by] == ["eager"])
    await scene.pool_is("training", lambda pool: units_of(pool).used == 1 and pool.status.phase is PoolPhase.READY)

    # Moving a card waits for its pod, and never touches it.
    await scene.approve(FIRST, None)
    await scene.approve(SECOND, "training")
    await scene.device_is(SECOND, lambda device: pool_of(device) == "training")
    assert pool_of((await scene.devices())[FIRST]) == "training"
    assert await scene.phase("eager") == "Running"
    await scene.end_pod("eager")
    await scene.device_is(FIRST, lambda device: device.status.state is DeviceState.UNASSIGNED)
    await scene.approve(FIRST, "research")
    await scene.start_pod("curious", "research")
    await scene.pod_is("curious", "Running")

    # A fault takes a card out of service, not out of its pool or away from its pod; mended, it comes back.
    await edit_card(scene.client, FIRST, lambda machine, address: report_xid(machine, address, 79))
    await scene.device_is(FIRST, lambda device: device.status.state is DeviceState.FAULTED)
    await scene.pool_is("research", lambda pool: units_of(pool).faulted == 1)
    assert await scene.phase("curious") == "Running"
    await edit_card(scene.client, FIRST, heal)
    await scene.device_is(FIRST, lambda device: device.status.state is DeviceState.ASSIGNED)
    await until_async(lambda: notes_about(scene, FIRST, "GPUDeviceFaulted"), saying="the fault is told")

    # A card that is pulled is gone from everywhere.
    await scene.approve(THIRD, "training")
    await scene.device_is(THIRD, lambda device: pool_of(device) == "training")
    await edit_card(scene.client, THIRD, pull)

    async def pulled() -> bool:
        states = await scene.states()
        return THIRD not in await scene.devices() and not states["node-b"].spec.assignments

    await until_async(pulled)

    # A pool that is deleted waits for its pods and leaves nothing behind.
    await scene.client.delete(GPUPool, "research")
    await until_async(lambda: withdrawn(scene, "node-a", FIRST))
    assert await scene.phase("curious") == "Running"
    assert (await scene.pool("research")).deleting
    await scene.end_pod("curious")

    async def deleted() -> bool:
        try:
            await scene.pool("research")
        except NotFound:
            return True
        return False

    await until_async(deleted)
    first = (await scene.devices())[FIRST]
    assert (first.status.state, first.metadata.annotations) == (DeviceState.UNASSIGNED, {})
