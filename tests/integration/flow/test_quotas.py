"""Quotas of a pool on a real API server: held against a burst, lowered, restored, and gone with the pool."""

import asyncio

from gpu_control_plane.api import GPUPool
from gpu_control_plane.api.namespace import Namespace, ResourceQuota
from gpu_control_plane.kube import Selection
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.errors import Forbidden
from integration.flow.env import FlowEnv
from integration.kinds import Pod
from waiting import until_async

KEY = "requests.gpu.deckhouse.io/training"


async def limit_in(env: FlowEnv, namespace: str, name: str = "gpu-pool-training") -> str | None:
    quotas = await env.client.list(ResourceQuota, Selection(namespace, fields=f"metadata.name={name}"))
    return quotas[0].spec.hard.get(KEY) if quotas else None


async def limit_is(env: FlowEnv, namespace: str, limit: str | None) -> None:
    async def holds() -> bool:
        return await limit_in(env, namespace) == limit

    await until_async(holds, within=30, saying=f"the limit of {namespace} is {limit}")


async def set_quotas(env: FlowEnv, **units: int) -> None:
    quotas = [{"namespace": namespace, "units": limit} for namespace, limit in units.items()]
    await env.client.patch(GPUPool, "training", {"spec": {"quotas": quotas}})


async def said(env: FlowEnv, reason: str) -> None:
    def holds(pool: GPUPool) -> bool:
        found = find(pool.status.conditions, "QuotasHold")
        return found is not None and found.reason == reason

    await env.pool_is("training", holds)


async def create_pods(env: FlowEnv, count: int) -> list[str]:
    """The answers to as many creations at once: the name of a Pod, or the sentence of a refusal."""

    async def create(number: int) -> str:
        container = {"name": "main", "image": "any", "resources": {"limits": {"gpu.deckhouse.io/training": "1"}}}
        body = {"metadata": {"name": f"pod-{number}"}, "spec": {"containers": [container]}}
        try:
            return (await env.client.create(Pod, body, "team")).name
        except Forbidden as error:
            return error.message

    return list(await asyncio.gather(*(create(number) for number in range(count))))


async def test_quotas_hold_from_the_first_pod_to_the_end_of_the_pool(env: FlowEnv) -> None:
    await env.start_controller()
    await env.client.create(Namespace, {"metadata": {"name": "team"}})
    people = {"metadata": {"name": "people"}, "spec": {"hard": {KEY: "9", "pods": "50"}}}
    await env.client.create(ResourceQuota, people, "team")
    await env.add_pool("training", quotas=[{"namespace": "team", "units": 2}, {"namespace": "later", "units": 1}])
    await limit_is(env, "team", "2")
    await said(env, "NamespaceNotFound")

    answers = await create_pods(env, 20)
    assert len([answer for answer in answers if answer.startswith("pod-")]) == 2
    refused = next(answer for answer in answers if not answer.startswith("pod-"))
    assert refused.endswith(f"exceeded quota: gpu-pool-training, requested: {KEY}=1, used: {KEY}=2, limited: {KEY}=2")

    # Lowered below use: pods stay. Removed or changed by others: put right.
    await env.client.create(Namespace, {"metadata": {"name": "later"}})
    await limit_is(env, "later", "1")
    await set_quotas(env, team=1, later=1)
    await limit_is(env, "team", "1")
    await said(env, "OverQuota")
    assert len(await env.client.list(Pod, Selection("team"))) == 2
    await env.client.delete(ResourceQuota, "gpu-pool-training", "team")
    await limit_is(env, "team", "1")
    await env.client.patch(ResourceQuota, "gpu-pool-training", {"spec": {"hard": {KEY: "50"}}}, namespace="team")
    await limit_is(env, "team", "1")

    # Taken from the list, then gone with the pool; what people made is left alone.
    await set_quotas(env, team=1)
    await limit_is(env, "later", None)
    await env.client.delete(GPUPool, "training")
    await limit_is(env, "team", None)
    assert await limit_in(env, "team", "people") == "9"
