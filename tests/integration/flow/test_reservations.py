"""What is reserved for pods that wait, with a real scheduler and a real controller."""

from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.api.pod import Pod
from integration.flow.env import FlowEnv, units_of
from integration.flow.test_main_job import notes_about
from waiting import until_async

TTL = {"scheduling": {"reservationTTL": "20s"}}
EVERY_CARD: dict[str, object] = {"assignment": {"requireAnnotation": False}}


def stuck(name: str, units: int) -> dict[str, object]:
    """A pod that asks for cards, and for more memory than any node has."""
    resources = {"limits": {"gpu.deckhouse.io/training": str(units), "memory": "100Ti"}}
    container = {"name": "main", "image": "any", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


async def test_units_are_reserved_for_a_pod_that_does_not_start_until_its_time_is_over(env: FlowEnv) -> None:
    await env.start_controller("--timing", "pools.reservationShownAfter=1s")
    await env.add_nodes("node-a", "node-b")
    await env.add_pool("training", **EVERY_CARD, **TTL)
    await env.pool_is("training", lambda pool: units_of(pool).available == 4)

    await env.client.create(Pod, stuck("pair", 2), "default")
    await env.client.create(Pod, stuck("too-large", 3), "default")
    await env.pool_is("training", lambda pool: (units_of(pool).reserved, units_of(pool).available) == (2, 2))

    async def shown() -> bool:
        held = [device.status.reservation for device in (await env.devices()).values() if device.status.reservation]
        return [reservation.holder for reservation in held] == ["default/pair"] * 2

    await until_async(shown, saying="two cards show for whom they are reserved")
    states = [device.status.state or "" for device in (await env.devices()).values()]
    assert sorted(states) == [DeviceState.ASSIGNED] * 2 + [DeviceState.RESERVED] * 2

    # It is bookkeeping: a pod that can start takes what it needs.
    await env.start_pod("quick", "training", 2)
    await env.pod_is("quick", "Running")
    await env.pool_is("training", lambda pool: (units_of(pool).used, units_of(pool).reserved) == (2, 2))

    # Its time is over: the units count as free, an Event says so, and the pod stays.
    await env.pool_is("training", lambda pool: (units_of(pool).reserved, units_of(pool).available) == (0, 2))
    await until_async(lambda: notes_about(env, "pair", "GPUReservationExpired"))
    assert not await notes_about(env, "too-large", "GPUReservationExpired")
    for device in await env.devices():
        await env.device_is(device, lambda device: device.status.state is DeviceState.ASSIGNED)
    assert await env.phase("pair") == "Pending"


async def test_a_reservation_ends_with_its_pod(env: FlowEnv) -> None:
    await env.start_controller("--timing", "pools.reservationShownAfter=1s")
    await env.add_nodes("node-a")
    await env.add_pool("training", **EVERY_CARD)
    await env.pool_is("training", lambda pool: units_of(pool).available == 2)
    await env.client.create(Pod, stuck("pair", 2), "default")
    await env.pool_is("training", lambda pool: units_of(pool).reserved == 2)
    await env.end_pod("pair")
    await env.pool_is("training", lambda pool: units_of(pool).available == 2)
