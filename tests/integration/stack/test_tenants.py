"""A tenant writes Leases under the name of NVIDIA's operator: this operator goes on as if there were none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from gpu_control_plane.api.nvidia.names import LEASE, StackEvent
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import Forbidden, NotFound
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.operator.nvidia_lease import LEASE_SELECTION
from gpu_control_plane.operator.stack.live import LiveService
from integration.stack.operator_env import NAMESPACE, OperatorEnv, gpu_node
from integration.stack.scenarios import stock
from integration.tenant import tenant
from unit.operator.stack.daemonset_names import EXPORTER
from waiting import until, until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

AGES = 2**31 - 1


def hostile(*, minutes_ago: float) -> dict[str, dict[str, Any]]:
    """Six Leases that would last for ever, or that no clock can be set by. The last was renewed so long ago."""
    now = utc_now()

    def held(renewed: str, seconds: int = 15) -> dict[str, Any]:
        return {"holderIdentity": "gpu-operator-x_1", "leaseDurationSeconds": seconds, "renewTime": renewed}

    return {
        "year 0": held("0000-01-01T00:00:00.000000Z"),
        "before year 0": held("0000-01-01T00:00:00.000000+01:00"),
        "the end of year 9999": held("9999-12-31T23:59:59.999999Z", AGES),
        "after year 9999": held("9999-12-31T23:59:59.999999-01:00"),
        "in an hour": held(micro_time(now + timedelta(hours=1))),
        "for 68 years": held(micro_time(now - timedelta(minutes=minutes_ago)), AGES),
    }


@asynccontextmanager
async def undisturbed(env: OperatorEnv, node: str) -> AsyncIterator[None]:
    """A policy that is ready, and still is after the block, in which nothing was written."""
    await env.nodes(gpu_node(node))
    await env.policy(stock())
    before = await env.state("ready")
    await env.at_rest()
    writes = env.writes()
    yield
    await env.at_rest()
    after = await env.get_policy()
    assert after.status.conditions == before.status.conditions
    assert env.writes() == writes
    assert not await env.events(StackEvent.OTHER_OPERATOR_ACTIVE)
    assert env.runtime is not None
    assert b"kube_reconciles_total" in generate_latest(env.runtime.metrics.registry)


async def writes_again_what_is_deleted(env: OperatorEnv) -> None:
    await env.client.delete(LiveService, EXPORTER, NAMESPACE)

    async def restored() -> bool:
        return EXPORTER in await env.held(LiveService)

    await until_async(restored, saying="the operator does not write")


async def write(env: OperatorEnv, who: Client, namespace: str, spec: dict[str, Any]) -> None:
    """Write the Lease, and wait until the operator has seen it."""
    try:
        made = await who.patch(TimedLease, LEASE, {"spec": spec}, namespace=namespace)
    except NotFound:
        made = await who.create(TimedLease, {"metadata": {"name": LEASE}, "spec": spec}, namespace)
    assert env.runtime is not None
    leases = env.runtime.cache(TimedLease, LEASE_SELECTION)
    await until(lambda: leases.at(made.key) == made, saying="the operator has not seen the Lease")


async def test_a_tenants_leases_change_no_condition_and_stop_no_write(env: OperatorEnv, tmp_path: Path) -> None:
    async with tenant(env.client, env.cluster.kubeconfig, tmp_path) as editor:
        with pytest.raises(Forbidden):
            await editor.client.create(TimedLease, {"metadata": {"name": LEASE}}, NAMESPACE)
        async with undisturbed(env, "tenants-0"):
            for spec in hostile(minutes_ago=0).values():
                await write(env, editor.client, editor.namespace, spec)
        for spec in hostile(minutes_ago=0).values():
            await write(env, editor.client, editor.namespace, spec)
            await writes_again_what_is_deleted(env)
        # A process that starts while it is there is not held up either.
        await env.kill()
        await env.start()
        await writes_again_what_is_deleted(env)
        assert not await env.events(StackEvent.OTHER_OPERATOR_ACTIVE)


async def test_impossible_times_are_nobodys_in_a_trusted_namespace_too(env: OperatorEnv) -> None:
    async with undisturbed(env, "trusted-0"):
        for spec in hostile(minutes_ago=120).values():
            await write(env, env.client, NAMESPACE, spec)
            await env.client.delete(TimedLease, LEASE, NAMESPACE)
