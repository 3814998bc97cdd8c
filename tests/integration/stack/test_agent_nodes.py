"""Nodes on which our agent serves: what of the stack comes to them, and what follows when it comes and leaves."""

import contextlib
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import DEPLOY, PRE_INSTALLED, NodeLabel
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.operator.stack.live import LiveDaemonSet
from integration.stack.operator_env import OperatorEnv, gpu_node
from integration.stack.scenarios import stock
from unit.operator.stack.daemonset_names import DRIVER, EXPORTER, GFD, MIG, PLUGIN, STATUS_EXPORTER, TOOLKIT, VALIDATOR
from waiting import until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

_OURS = f"{VALIDATOR}-agent"
_EVERYWHERE = {DRIVER, TOOLKIT, EXPORTER, GFD, STATUS_EXPORTER}
_WITH_AGENT = _EVERYWHERE | {_OURS}
_WITHOUT = _EVERYWHERE | {VALIDATOR, PLUGIN, MIG}
_GATE = f"{DEPLOY}operator-validator"
_CAPABLE = {str(NodeLabel.MIG_CAPABLE): "true"}


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def reports(env: OperatorEnv) -> AsyncIterator[None]:
    yield
    for state in await env.client.list(GPUNodeState):
        await _agent_leaves(env, state.name)


async def test_nodes_get_other_operands_when_the_agent_comes_and_goes(env: OperatorEnv) -> None:
    await _agent_serves(env, "side-a")
    await env.nodes(gpu_node("side-a", labels=_CAPABLE), gpu_node("side-b", labels=_CAPABLE))
    await env.policy(stock(nodeStatusExporter={"enabled": True}))
    await _comes_to(env, {"side-a": _WITH_AGENT, "side-b": _WITHOUT})
    await env.state("ready")
    # A plugin may offer nothing that NVIDIA's validator knows: it must not be waited for.
    assert "plugin-validation" not in await _checks(env, "side-a")
    assert "plugin-validation" in await _checks(env, "side-b")

    # A driver manager makes room, and puts back what it found.
    await _label(env, "side-a", "agent_paused-for-driver-upgrade")
    await _comes_to(env, {"side-a": _EVERYWHERE, "side-b": _WITHOUT})
    await env.at_rest()
    assert (await env.node("side-a")).metadata.labels[_GATE] == "agent_paused-for-driver-upgrade"
    assert _OURS in await env.daemonsets()
    await _label(env, "side-a", "agent")
    await _comes_to(env, {"side-a": _WITH_AGENT, "side-b": _WITHOUT})

    await _agent_serves(env, "side-b")
    await _agent_leaves(env, "side-a")
    await _comes_to(env, {"side-a": _WITHOUT, "side-b": _WITH_AGENT})
    await env.state("ready")

    await _agent_leaves(env, "side-b")
    await _comes_to(env, {"side-a": _WITHOUT, "side-b": _WITHOUT})
    await until_async(partial(_gone, env, _OURS), within=60, saying="a DaemonSet without nodes stays")
    await env.state("ready")


async def test_a_fleet_that_brings_its_drivers_need_not_say_its_system(env: OperatorEnv) -> None:
    for name in ("bring-a", "bring-b"):
        await _agent_serves(env, name, driver={"version": "580.159.04", "source": "Host"})
    nodes = [gpu_node(name) for name in ("bring-a", "bring-b")]
    for node in nodes:
        for label in (NodeLabel.OS_ID, NodeLabel.OS_VERSION, NodeLabel.OS_MAJOR):
            del node["metadata"]["labels"][str(label)]
    await env.nodes(*nodes)
    await env.policy(stock())
    policy = await env.state("ready")
    assert {state.name: state.desired for state in policy.status.states}["state-driver"] == 0
    assert DRIVER not in await env.daemonsets()
    assert (await env.node("bring-a")).metadata.labels[f"{DEPLOY}driver"] == PRE_INSTALLED

    # One of them loses its driver: the status names the labels that it lacks for one of ours.
    await _say(env, "bring-a", driver=None, validation={"steps": [{"name": "driver", "result": "Failed"}]})
    assert "operating system" in (await env.condition("Error", "ReconcileFailed")).message


async def _agent_serves(env: OperatorEnv, node: str, **status: object) -> None:
    await env.client.create(GPUNodeState, {"metadata": {"name": node}, "spec": {}})
    await _say(env, node, plugin={"observedGeneration": 1}, **status)


async def _say(env: OperatorEnv, node: str, **status: object) -> None:
    await env.client.patch(GPUNodeState, node, {"status": status}, subresource="status")


async def _agent_leaves(env: OperatorEnv, node: str) -> None:
    with contextlib.suppress(NotFound):
        await env.client.delete(GPUNodeState, node)


async def _label(env: OperatorEnv, node: str, value: str) -> None:
    await env.client.patch(Node, node, {"metadata": {"labels": {_GATE: value}}})


async def _placed(env: OperatorEnv) -> dict[str, set[str]]:
    """The DaemonSets with a pod on each node that works and stays."""
    found: dict[str, set[str]] = {}
    for pod in await env.pods():
        if pod.controller and pod.containers_ready and not pod.deleting:
            found.setdefault(pod.spec.node_name, set()).add(pod.controller.name)
    return found


async def _comes_to(env: OperatorEnv, wanted: dict[str, set[str]]) -> None:
    async def there() -> bool:
        return await _placed(env) == wanted

    await until_async(there, within=120, saying=f"the pods do not become {wanted}")


async def _checks(env: OperatorEnv, node: str) -> set[str]:
    """What the validator of a node checks."""
    pods = [pod for pod in await env.pods() if pod.metadata.labels.get("app") == VALIDATOR]
    (found,) = [pod for pod in pods if pod.spec.node_name == node]
    assert found.controller is not None
    live = (await env.held(LiveDaemonSet))[found.controller.name]
    return {held["name"] for held in live.body()["spec"]["template"]["spec"]["initContainers"]}


async def _gone(env: OperatorEnv, name: str) -> bool:
    return name not in await env.daemonsets()
