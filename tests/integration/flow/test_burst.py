"""A thousand pods at once against two replicas with webhooks: nothing is issued twice, whoever dies meanwhile."""

import asyncio
from collections import Counter

from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.installation.webhooks import install as install_webhooks
from gpu_control_plane.kube import Selection
from gpu_control_plane.local.ports import LOOPBACK, free_port
from integration.flow.env import FlowEnv, units_of, webhook_options
from integration.flow.replicas import balanced
from waiting import until_async

PODS = 1000
NODES = 8
CARDS = 8
EVERY_CARD: dict[str, object] = {"assignment": {"requireAnnotation": False}}


async def test_a_thousand_pods_at_once_are_issued_no_unit_twice(env: FlowEnv) -> None:
    first, second = free_port(), free_port()
    await env.start_controller(*webhook_options(first))
    replica = await env.start_replica("second", *webhook_options(second))
    try:
        async with balanced(first, second) as port:
            await install_webhooks(env.client, f"https://{LOOPBACK}:{port}")
            await env.webhooks_trusted()
            await env.add_nodes(*(f"node-{number}" for number in range(NODES)), cards=CARDS)
            await env.add_pool("training", **EVERY_CARD)
            await env.pool_is("training", lambda pool: units_of(pool).available == NODES * CARDS)

            creations = asyncio.Semaphore(50)

            async def create(number: int) -> None:
                async with creations:
                    await env.start_pod(f"pod-{number}", "training")

            await asyncio.gather(*(create(number) for number in range(PODS)))
            await env.pool_is("training", lambda pool: units_of(pool).used == NODES * CARDS)
            await _nothing_is_issued_twice(env)

            # The leader dies while half of the pods end, and others take their cards.
            env.kill_controller()
            running = [pod for pod in await _pods(env) if pod.status.phase == "Running"]
            assert len(running) == NODES * CARDS
            for pod in running[::2]:
                await env.end_pod(pod.name)

            async def taken() -> bool:
                pods = await _pods(env)
                return len([pod for pod in pods if pod.status.phase == "Running"]) == NODES * CARDS

            await until_async(taken, within=120, saying="other pods have the cards")
            await env.pool_is("training", lambda pool: units_of(pool).used == NODES * CARDS)
            await _nothing_is_issued_twice(env)
    finally:
        replica.kill()
        await replica.wait()

    pods = await _pods(env)
    called = Counter(pod.metadata.labels.get(Label.POOL) for pod in pods)
    assert called["training"] > PODS // 2, f"the webhook was called for {called}"
    tokens = [pod.metadata.annotations[Annotation.RESERVATION] for pod in pods if Label.POOL in pod.metadata.labels]
    assert len(set(tokens)) == len(tokens)


async def _nothing_is_issued_twice(env: FlowEnv) -> None:
    users: Counter[str] = Counter()
    for device in (await env.devices()).values():
        assert sum(user.units for user in device.status.used_by) <= 1, device
        users.update(user.pod for user in device.status.used_by)
    assert all(count == 1 for count in users.values()), users
    units = units_of(await env.pool("training"))
    counted = units.used + units.reserved + units.available + units.faulted
    assert (units.total, counted) == (NODES * CARDS, NODES * CARDS)


async def _pods(env: FlowEnv) -> list[Pod]:
    return list(await env.client.list(Pod, Selection("default")))
