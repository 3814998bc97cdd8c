"""GPU nodes that no pod of the stack comes to are named: Kubernetes itself does not count them."""

import pytest

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, StackCondition, StackReason
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from integration.stack.operator_env import OperatorEnv, gpu_node
from integration.stack.scenarios import stock
from unit.operator.stack.daemonset_names import DRIVER
from waiting import until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

_TAINT = {"key": "team", "value": "ml", "effect": "NoSchedule"}


async def test_a_fleet_with_untolerated_taints_is_not_ready_and_part_of_one_is_named(env: OperatorEnv) -> None:
    for name in ("far-0", "far-1"):
        await env.nodes(gpu_node(name) | {"spec": {"taints": [_TAINT]}})
    await env.policy(stock())
    policy = await env.state("notReady")
    says = "no GPU node takes pods of the stack: far-0 (team=ml:NoSchedule), far-1 (team=ml:NoSchedule)."
    while says not in _message(policy, StackCondition.ERROR):
        policy = await env.next_status(policy)
    assert "daemonsets.tolerations" in _message(policy, StackCondition.ERROR)

    await env.client.patch(Node, "far-0", {"spec": {"taints": []}})
    policy = await env.state("ready")
    assert "ready on 1 node. Out of reach are 1: far-1 (team=ml:NoSchedule)" in _message(policy, StackCondition.READY)

    await env.patch_policy({"daemonsets": {"tolerations": [{"operator": "Exists"}]}})
    policy = await env.state("ready")
    assert _message(policy, StackCondition.READY) == "All states are ready on 2 nodes."
    assert {pod.spec.node_name for pod in await env.pods()} == {"far-0", "far-1"}


async def test_a_pod_of_an_unreachable_node_is_named_although_its_containers_were_last_ready(
    env: OperatorEnv,
) -> None:
    await env.nodes(gpu_node("mute-0"), gpu_node("mute-1"))
    await env.policy(stock())
    seen = await env.state("ready")
    pod = await env.pod_of("nvidia-dcgm-exporter", "mute-1")
    given_up = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await env.client.patch(type(pod), pod.name, given_up, namespace=pod.metadata.namespace, subresource="status")
    while not (troubles := [trouble for state in seen.status.states for trouble in state.nodes]):
        seen = await env.next_status(seen)
    assert [(trouble.node, trouble.reason) for trouble in troubles] == [("mute-1", "NotReady")]
    assert "does not answer" in troubles[0].message


async def test_a_cluster_with_operands_disabled_on_all_nodes_is_ready(env: OperatorEnv) -> None:
    off = gpu_node("none-0", labels={str(NodeLabel.OPERANDS): "false"})
    await env.nodes(off | {"spec": {"taints": [_TAINT]}})
    await env.policy(stock())
    await env.condition(StackCondition.READY, StackReason.RECONCILED)
    assert not await env.pods()


async def test_a_node_with_an_unknown_system_is_named_until_it_is_labelled(env: OperatorEnv) -> None:
    strange = gpu_node("odd-1")
    for label in (NodeLabel.OS_ID, NodeLabel.OS_VERSION):
        del strange["metadata"]["labels"][label]
    await env.nodes(gpu_node("odd-0"), strange)
    await env.policy(stock())
    seen = await env.state("notReady")

    async def reported() -> bool:
        nonlocal seen
        seen = await env.get_policy()
        driver = next((state for state in seen.status.states if state.name == "state-driver"), None)
        return driver is not None and (driver.desired, driver.ready) == (2, 1)

    await until_async(reported, within=60, saying="the strange node is not counted")
    (trouble,) = next(state.nodes for state in seen.status.states if state.name == "state-driver")
    assert (trouble.node, trouble.reason) == ("odd-1", "NothingSuits")
    assert NodeLabel.OS_ID in trouble.message

    labels = {str(NodeLabel.OS_ID): "ubuntu", str(NodeLabel.OS_VERSION): "24.04"}
    await env.client.patch(Node, "odd-1", {"metadata": {"labels": labels}})
    await env.state("ready")
    assert (await env.daemonsets())[DRIVER].status.number_available == 2


def _message(policy: StoredClusterPolicy, wanted: StackCondition) -> str:
    return next((held.message for held in policy.status.conditions if held.type == wanted), "")
