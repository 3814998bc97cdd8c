"""A node whose host brings a driver gets none of ours; when the host loses it, ours comes."""

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import DEPLOY, PRE_INSTALLED
from gpu_control_plane.kube.errors import NotFound
from integration.stack.operator_env import OperatorEnv, gpu_node
from integration.stack.scenarios import stock
from unit.operator.stack.daemonset_names import DRIVER
from waiting import until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

_LABEL = f"{DEPLOY}driver"
_WORKS = {"steps": [{"name": "driver", "result": "Passed"}]}
_MISMATCH = "The kernel module is 580.1 but the libraries are 570.2."
_FAILS = {"steps": [{"name": "driver", "result": "Failed", "message": _MISMATCH}]}
_GOOD, _OLD = ({"version": version, "source": "Host"} for version in ("580.159.04", "418.40"))


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def reports(env: OperatorEnv) -> AsyncIterator[None]:
    yield
    for state in await env.client.list(GPUNodeState):
        with contextlib.suppress(NotFound):
            await env.client.delete(GPUNodeState, state.name)


async def test_a_host_driver_that_the_agent_reports(env: OperatorEnv) -> None:
    await env.client.create(GPUNodeState, {"metadata": {"name": "pre-a"}, "spec": {}})
    await _say(env, driver=_GOOD, validation=_WORKS)
    await env.nodes(gpu_node("pre-a"), gpu_node("pre-b"))
    await env.policy(stock())
    policy = await env.state("ready")
    assert (await env.node("pre-a")).metadata.labels[_LABEL] == PRE_INSTALLED
    assert await _driven(env) == {"pre-b"}
    assert {state.name: state.desired for state in policy.status.states}["state-driver"] == 1

    # Its check fails, as after a new kernel: the status says so, and no driver container comes.
    for said, why in (({"driver": _GOOD, "validation": _FAILS}, _MISMATCH), ({"driver": _OLD}, "418.40 is too old")):
        await _say(env, **said)
        await until_async(partial(_reported, env, why), within=60, saying=f"the status does not say: {why}")
        assert (await env.node("pre-a")).metadata.labels[_LABEL] == PRE_INSTALLED
        assert await _driven(env) == {"pre-b"}

    # It is removed from the host: ours comes.
    await _say(env, driver=None, validation=_FAILS)
    await until_async(lambda: _is_driven(env, {"pre-a", "pre-b"}), within=60, saying="no driver comes")
    await env.state("ready")
    assert (await env.node("pre-a")).metadata.labels[_LABEL] == "true"


async def test_a_host_driver_that_the_driver_container_has_found(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("found-a"), gpu_node("found-b"))
    await env.policy(stock())
    await env.state("ready")
    assert await _driven(env) == {"found-a", "found-b"}
    await env.client.patch(Node, "found-a", {"metadata": {"labels": {_LABEL: PRE_INSTALLED}}})
    await until_async(lambda: _is_driven(env, {"found-b"}), within=60, saying="the driver stays")
    await env.state("ready")
    await env.at_rest()
    assert (await env.node("found-a")).metadata.labels[_LABEL] == PRE_INSTALLED

    # Without an agent it is not known when the host loses it; a person says so by removing the label.
    await env.client.patch(Node, "found-a", {"metadata": {"labels": {_LABEL: None}}})
    await until_async(lambda: _is_driven(env, {"found-a", "found-b"}), within=60, saying="no driver comes")
    await env.state("ready")


async def _say(env: OperatorEnv, **status: Any) -> None:
    """What the agent of the node reports."""
    await env.client.patch(GPUNodeState, "pre-a", {"status": status}, subresource="status")


async def _reported(env: OperatorEnv, why: str) -> bool:
    policy = await env.get_policy()
    troubles = [held for state in policy.status.states if state.name == "state-driver" for held in state.nodes]
    return policy.status.state == "notReady" and [
        (held.node, held.reason, why in held.message) for held in troubles
    ] == [("pre-a", "HostDriver", True)]


async def _driven(env: OperatorEnv) -> set[str]:
    """Nodes with a driver pod."""
    pods = [pod for pod in await env.pods() if pod.controller and pod.controller.name.startswith(DRIVER)]
    return {pod.spec.node_name for pod in pods if not pod.deleting}


async def _is_driven(env: OperatorEnv, nodes: set[str]) -> bool:
    return await _driven(env) == nodes
