"""What is around the stack may change: kinds that the cluster learns and forgets, and NVIDIA's own operator."""

from typing import Any

import pytest

from gpu_control_plane.api.nvidia.names import DEPLOY, LEASE, StackCondition, StackEvent, StackReason
from gpu_control_plane.kube import Resource
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.kube.errors import NotFound, TooManyRequests
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.operator.gpu_cluster import GPUCluster
from gpu_control_plane.operator.stack.live import LiveServiceMonitor
from integration.stack.operator_env import NAMESPACE, OperatorEnv, gpu_node
from integration.stack.scenarios import stock
from unit.operator.stack.daemonset_names import EXPORTER
from waiting import until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

_MONITORS = LiveServiceMonitor.resource


def _definition(kind: Resource = _MONITORS) -> dict[str, Any]:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    return {
        "metadata": {"name": kind.qualified_name},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {"kind": kind.kind, "plural": kind.plural},
            "versions": [version],
        },
    }


async def test_service_monitors_come_and_go_with_their_kind(env: OperatorEnv) -> None:
    await env.policy(stock())
    await env.state("ready")
    for _ in range(2):
        await env.client.create(CustomResourceDefinition, _definition())
        await until_async(lambda: _monitored(env), within=60, saying="there is no ServiceMonitor")
        await env.client.delete(LiveServiceMonitor, EXPORTER, NAMESPACE)
        await until_async(lambda: _monitored(env), within=60, saying="it was not made again")
        await env.client.delete(CustomResourceDefinition, _MONITORS.qualified_name)
        await until_async(lambda: _forgotten(env), within=60, saying="the kind stays")
        await env.patch_policy({"dcgmExporter": {"serviceMonitor": {"enabled": True, "interval": "20s"}}})
        policy = await env.state("ready")
        assert not [state for state in policy.status.states if state.state == "failed"]


async def test_a_policy_beside_a_gpu_cluster_is_refused(env: OperatorEnv) -> None:
    """Each of the two would hand out the same cards."""
    resource, name = GPUCluster.resource, "gpu-cluster"
    await env.nodes(gpu_node("claimed-0"))
    await env.client.create(CustomResourceDefinition, _definition(resource))
    try:
        await until_async(lambda: _created(env, name), within=60, saying="the kind is not served")
        await env.policy(stock())
        held = await env.condition(StackCondition.ERROR, StackReason.RECONCILE_FAILED)
        assert "GPUCluster gpu-cluster hands out cards" in held.message
        await env.at_rest()
        assert await env.empty()
        # A process that starts while it is there writes nothing either.
        await env.kill()
        await env.start()
        await env.at_rest()
        assert await env.empty()
        await env.client.delete(GPUCluster, name)
        await env.state("ready")
    finally:
        await env.client.delete(CustomResourceDefinition, resource.qualified_name)


async def _created(env: OperatorEnv, name: str) -> bool:
    try:
        await env.client.create(GPUCluster, {"metadata": {"name": name}})
    except NotFound:
        return False
    return True


async def test_nothing_is_written_while_nvidias_operator_is_active(env: OperatorEnv) -> None:
    lease = {
        "metadata": {"name": LEASE},
        "spec": {
            "holderIdentity": "gpu-operator-abc",
            "leaseDurationSeconds": 3600,
            "renewTime": micro_time(utc_now()),
        },
    }
    await env.client.create(TimedLease, lease, NAMESPACE)
    await env.nodes(gpu_node("nvidia-0"))
    policy = await env.policy(stock())
    held = await env.condition(StackCondition.OTHER_OPERATOR_ACTIVE, "LeaseHeld")
    assert "gpu-operator-abc" in held.message
    await env.event(StackEvent.OTHER_OPERATOR_ACTIVE, "gpu-operator-abc")
    await env.at_rest()
    policy = await env.get_policy()
    assert [held.type for held in policy.status.conditions] == [StackCondition.OTHER_OPERATOR_ACTIVE]
    assert not policy.status.states
    assert await env.empty()
    assert not any(label.startswith(DEPLOY) for label in (await env.node("nvidia-0")).metadata.labels)

    await env.client.delete(TimedLease, LEASE, NAMESPACE)
    policy = await env.state("ready")
    assert StackCondition.OTHER_OPERATOR_ACTIVE not in {held.type for held in policy.status.conditions}
    await env.event(StackEvent.TAKEN_OVER)


async def _monitored(env: OperatorEnv) -> bool:
    try:
        return EXPORTER in await env.held(LiveServiceMonitor)
    except (NotFound, TooManyRequests):
        return False  # the kind is not served yet


async def _forgotten(env: OperatorEnv) -> bool:
    known = {held.name for held in await env.client.list(CustomResourceDefinition)}
    return _MONITORS.qualified_name not in known
