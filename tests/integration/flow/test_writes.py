"""How many writes a card costs the controller on its way from nothing into a pool, against what the API needs."""

import time
from collections import Counter
from functools import partial

from integration.flow.env import FlowEnv, is_product_write, pool_of, units_of
from waiting import until, until_async

CARDS = 8


async def test_a_card_costs_four_writes_and_a_settled_node_none(env: FlowEnv) -> None:
    """Created, described, approved and claimed: fewer the API does not allow, since object and status are apart."""
    await env.add_pool("training", assignment={"requireAnnotation": False})
    await env.start_controller()
    await env.pool_is("training", lambda pool: pool.status.phase)
    began = time.monotonic()
    await env.add_nodes("node-a", cards=CARDS)

    async def pooled() -> bool:
        devices = await env.devices()
        return len(devices) == CARDS and all(pool_of(device) == "training" for device in devices.values())

    await until_async(pooled)
    await env.pool_is("training", lambda pool: units_of(pool).available == CARDS)
    took = time.monotonic() - began
    await _quiet(env)
    # A write that the server refused as a conflict changed nothing and is not counted here.
    landed = [request for request, code in env.proxy.answers if is_product_write(request) and code < 400]
    writes = Counter(_what(request.path) for request in landed)
    # Objects and approvals, hardware and claims.
    assert (writes["gpudevices"], writes["gpudevices/status"]) == (2 * CARDS, 2 * CARDS)
    # The node's object and its assignments; inventory, bootstrap and pools each write their part once.
    assert writes["gpunodestates"] == 2
    assert writes["gpunodestates/status"] <= 4
    # The status of a pool is written at most once a second.
    assert writes["gpupools"] == 1
    assert writes["gpupools/status"] <= 3 + took
    # Who may use the pool.
    assert writes["configmaps"] == 1


async def _quiet(env: FlowEnv) -> None:
    """No write for two seconds, which also shows that a settled node costs nothing."""
    for _ in range(10):
        before = sum(is_product_write(request) for request in env.proxy.requests)
        leases = sum("/leases" in request.path for request in env.proxy.requests)
        await until(partial(_renewed, env, leases))
        if sum(is_product_write(request) for request in env.proxy.requests) == before:
            return
    raise AssertionError("the controller never settles")


def _renewed(env: FlowEnv, before: int) -> bool:
    return sum("/leases" in request.path for request in env.proxy.requests) > before


def _what(path: str) -> str:
    parts = path.split("/")
    kinds = {"gpudevices", "gpunodestates", "gpupools", "nodefeatures", "configmaps"}
    kind = next(part for part in parts if part in kinds)
    return f"{kind}/status" if parts[-1] == "status" else kind
