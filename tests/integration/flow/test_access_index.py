"""The index of who may use which resource: there before any order, closed while a node offers, and nobody else's."""

import asyncio
import math
from typing import ClassVar

from fault_proxy import Fault
from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.api import GPUDevice, GPUNodeState, GPUPool
from gpu_control_plane.api.admissionpolicy import ValidatingAdmissionPolicyBinding
from gpu_control_plane.api.names import PoolCondition
from gpu_control_plane.installation.policies import install_policies
from gpu_control_plane.kube import Object, Resource
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.rules.access_index import INDEX_NAME
from integration.flow.env import FlowEnv, pool_of, units_of
from waiting import until_async

OWN, OTHER = "gpu.example.com/own", "gpu.example.com/other"
AUTOMATIC = {"requireAnnotation": False}


class ConfigMap(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")

    data: dict[str, str] = {}


async def index_is(env: FlowEnv, **wanted: str) -> None:
    """The index holds exactly this, for the resource `OWN` and for `OTHER`."""
    names = {"own": OWN.replace("/", "_"), "other": OTHER.replace("/", "_")}
    data = {names[key]: text for key, text in wanted.items()}

    async def holds() -> bool:
        try:
            return (await env.client.get(ConfigMap, INDEX_NAME, NAMESPACE)).data == data
        except NotFound:
            return False

    await until_async(holds, within=60, saying=f"the index is {data}")


async def test_no_card_is_ordered_before_the_index_has_its_pool(env: FlowEnv) -> None:
    fault = Fault(when=lambda request: request.is_write and "configmaps" in request.path, times=math.inf, status=500)
    env.proxy.faults.append(fault)
    await env.start_controller()
    await env.add_nodes("node-a", cards=2)
    await env.add_pool("training", resource={"name": OWN}, assignment=AUTOMATIC, access={"namespaces": ["default"]})

    async def claimed() -> bool:
        devices: dict[str, GPUDevice] = await env.devices()
        return len(devices) == 2 and all(pool_of(device) == "training" for device in devices.values())

    await until_async(claimed, within=90, saying="both cards are claimed")
    refused = len(env.proxy.requests)
    await until_async(lambda: _more_writes(env, refused), within=60, saying="the index is tried again")
    assert not (await env.states())["node-a"].spec.assignments
    env.proxy.faults.clear()
    await env.pool_is("training", lambda pool: units_of(pool).available == 2)
    await index_is(env, own="pool training\n\nnamespace default\n")


async def test_the_index_follows_pools_and_is_nobody_elses(env: FlowEnv) -> None:
    await env.start_controller()
    await env.add_pool("training", resource={"name": OWN}, access={"namespaces": ["default"]})
    await index_is(env, own="pool training\n\nnamespace default\n")
    await env.pool_is("training", lambda pool: _status(pool, PoolCondition.ACCESSIBLE) == "True")

    await env.client.patch(
        ConfigMap, INDEX_NAME, {"data": {"a_b": "x", "gpu.example.com_own": "y"}}, namespace=NAMESPACE
    )
    await index_is(env, own="pool training\n\nnamespace default\n")
    await env.client.delete(ConfigMap, INDEX_NAME, NAMESPACE)
    await index_is(env, own="pool training\n\nnamespace default\n")

    await env.client.delete(ValidatingAdmissionPolicyBinding, INDEX_NAME)
    await env.pool_is("training", lambda pool: _status(pool, PoolCondition.GUARDED) == "False")
    await asyncio.to_thread(install_policies, env.cluster.kubeconfig)
    await env.pool_is("training", lambda pool: _status(pool, PoolCondition.GUARDED) == "True")

    # A node that says it still offers the old name.
    await env.client.create(GPUNodeState, {"metadata": {"name": "slow"}})
    offered = {"resources": [{"name": OWN, "units": 1, "healthy": 1}], "observedGeneration": 1}
    await env.client.patch(GPUNodeState, "slow", {"status": {"plugin": offered}}, subresource="status")
    await env.client.patch(GPUPool, "training", {"spec": {"resource": {"name": OTHER}, "access": None}})
    await index_is(env, own="pool training\n\n", other="pool training\n\n")
    await env.pool_is("training", lambda pool: _status(pool, PoolCondition.ACCESSIBLE) == "False")
    await env.client.patch(GPUNodeState, "slow", {"status": {"plugin": None}}, subresource="status")
    await index_is(env, other="pool training\n\n")


async def _more_writes(env: FlowEnv, seen: int) -> bool:
    return any(request.is_write and "configmaps" in request.path for request in env.proxy.requests[seen:])


def _status(pool: GPUPool, kind: PoolCondition) -> str | None:
    found = find(pool.status.conditions, kind)
    return found.status if found else None
