"""Objects that NVIDIA's operator made for a policy are deleted when the policy does not ask for them any more."""

from typing import Any

import pytest

from fault_proxy import FaultProxy, Request
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import Selection, load_config
from gpu_control_plane.operator.stack.live import (
    Live,
    LiveConfigMap,
    LiveDaemonSet,
    LiveRole,
    LiveRuntimeClass,
    LiveService,
    LiveServiceAccount,
)
from integration.stack.operator_env import NAMESPACE, OperatorEnv, gpu_node
from integration.stack.scenarios import stock
from waiting import until, until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

_KATA = "nvidia-kata-manager"
_MADE_BY_KATA = {"nvidia.com/kata-runtime-class": "true"}


def _owned(policy: StoredClusterPolicy) -> list[dict[str, Any]]:
    resource = policy.resource
    return [
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": policy.name,
            "uid": policy.metadata.uid,
            "controller": True,
        }
    ]


async def test_what_an_old_kata_manager_made_goes_but_not_what_others_made(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("kata-old"))
    policy = await env.policy(stock())
    await env.state("ready")
    pod = {"containers": [{"name": "kata", "image": "example.com/kata:1"}], "nodeSelector": {"no": "node"}}
    daemonset = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}
    theirs: list[tuple[type[Live], str, dict[str, Any]]] = [
        (LiveRuntimeClass, "kata-qemu-nvidia-gpu", {"handler": "kata-qemu-nvidia-gpu"}),
        (LiveServiceAccount, _KATA, {}),
        (LiveRole, _KATA, {}),
        (LiveConfigMap, f"{_KATA}-config", {}),
        (LiveService, "left-over", {"spec": {"ports": [{"port": 80}]}}),
        (LiveDaemonSet, _KATA, {"spec": daemonset}),
    ]
    metadata = {"labels": _MADE_BY_KATA}
    await env.client.create(LiveRuntimeClass, {"metadata": {"name": "of-a-person", **metadata}, "handler": "kata"})
    for kind, name, body in theirs:
        made = {"metadata": {"name": name, "ownerReferences": _owned(policy), **metadata}, **body}
        await env.client.create(kind, made, _place(kind))

    async def gone() -> bool:
        return not [name for kind, name, _ in theirs if await _there(env, kind, name)]

    await until_async(gone, within=60, saying="something stays behind")
    await env.at_rest()
    assert await _there(env, LiveRuntimeClass, "of-a-person")
    await env.client.delete(LiveRuntimeClass, "of-a-person")


def _place(kind: type[Live]) -> str | None:
    return NAMESPACE if kind.resource.namespaced else None


async def _there(env: OperatorEnv, kind: type[Live], name: str) -> bool:
    return name in {held.name for held in await env.client.list(kind, Selection(namespace=_place(kind)))}


async def test_what_a_person_takes_over_at_the_last_moment_stays(env: OperatorEnv) -> None:
    await env.kill()
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/taken-over"

    async def take_over(request: Request) -> None:
        if (request.method, request.path) == ("DELETE", path):
            await env.client.patch(
                LiveConfigMap, "taken-over", {"metadata": {"ownerReferences": None}}, namespace=NAMESPACE
            )

    async with FaultProxy.before(load_config(env.cluster.kubeconfig)) as proxy:
        await env.start(proxy.config)
        await env.nodes(gpu_node("taken"))
        policy = await env.policy(stock())
        await env.state("ready")
        proxy.on_request = take_over
        made = {"metadata": {"name": "taken-over", "ownerReferences": _owned(policy)}}
        await env.client.create(LiveConfigMap, made, NAMESPACE)

        def refused() -> list[int]:
            return [code for request, code in proxy.answers if (request.method, request.path) == ("DELETE", path)]

        await until(refused, within=60, saying="it is not pruned")
        await env.at_rest()
        assert refused() == [409]
        assert await _there(env, LiveConfigMap, "taken-over")
        await env.kill()
    await env.client.delete(LiveConfigMap, "taken-over", NAMESPACE)
