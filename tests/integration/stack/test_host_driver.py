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
from integration.stack.operator_env import Theatre, gpu_node
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
async def reports(theatre: Theatre) -> AsyncIterator[None]:
    yield
    for state in await theatre.client.list(GPUNodeState):
        with contextlib.suppress(NotFound):
            await theatre.client.delete(GPUNodeState, state.name)


async def test_by_the_word_of_the_agent(theatre: Theatre) -> None:
    await theatre.client.create(GPUNodeState, {"metadata": {"name": "pre-a"}, "spec": {}})
    await _say(theatre, driver=_GOOD, validation=_WORKS)
    await theatre.nodes(gpu_node("pre-a"), gpu_node("pre-b"))
    await theatre.policy(stock())
    policy = await theatre.state("ready")
    assert (await theatre.node("pre-a")).metadata.labels[_LABEL] == PRE_INSTALLED
    assert await _driven(theatre) == {"pre-b"}
    assert {state.name: state.desired for state in policy.status.states}["state-driver"] == 1

    # Its check fails, as after a new kernel: it is told, and nobody puts a second driver beside it.
    for said, why in (({"driver": _GOOD, "validation": _FAILS}, _MISMATCH), ({"driver": _OLD}, "418.40 is too old")):
        await _say(theatre, **said)
        await until_async(partial(_told, theatre, why), within=60, saying=f"nobody says: {why}")
        assert (await theatre.node("pre-a")).metadata.labels[_LABEL] == PRE_INSTALLED
        assert await _driven(theatre) == {"pre-b"}

    # It is removed from the host: ours comes.
    await _say(theatre, driver=None, validation=_FAILS)
    await until_async(lambda: _is_driven(theatre, {"pre-a", "pre-b"}), within=60, saying="no driver comes")
    await theatre.state("ready")
    assert (await theatre.node("pre-a")).metadata.labels[_LABEL] == "true"


async def test_by_the_word_of_the_driver_container_that_found_it(theatre: Theatre) -> None:
    await theatre.nodes(gpu_node("found-a"), gpu_node("found-b"))
    await theatre.policy(stock())
    await theatre.state("ready")
    assert await _driven(theatre) == {"found-a", "found-b"}
    await theatre.client.patch(Node, "found-a", {"metadata": {"labels": {_LABEL: PRE_INSTALLED}}})
    await until_async(lambda: _is_driven(theatre, {"found-b"}), within=60, saying="the driver stays")
    await theatre.state("ready")
    await theatre.at_rest()
    assert (await theatre.node("found-a")).metadata.labels[_LABEL] == PRE_INSTALLED

    # Without an agent nobody knows when the host loses it; a person says so by removing the label.
    await theatre.client.patch(Node, "found-a", {"metadata": {"labels": {_LABEL: None}}})
    await until_async(lambda: _is_driven(theatre, {"found-a", "found-b"}), within=60, saying="no driver comes")
    await theatre.state("ready")


async def _say(theatre: Theatre, **status: Any) -> None:
    """What the agent of the node reports."""
    await theatre.client.patch(GPUNodeState, "pre-a", {"status": status}, subresource="status")


async def _told(theatre: Theatre, why: str) -> bool:
    policy = await theatre.seen_policy()
    troubles = [held for state in policy.status.states if state.name == "state-driver" for held in state.nodes]
    return policy.status.state == "notReady" and [
        (held.node, held.reason, why in held.message) for held in troubles
    ] == [("pre-a", "HostDriver", True)]


async def _driven(theatre: Theatre) -> set[str]:
    """Nodes with a driver pod."""
    pods = [pod for pod in await theatre.pods() if pod.controller and pod.controller.name.startswith(DRIVER)]
    return {pod.spec.node_name for pod in pods if not pod.deleting}


async def _is_driven(theatre: Theatre, nodes: set[str]) -> bool:
    return await _driven(theatre) == nodes
