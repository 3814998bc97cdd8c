"""What NVIDIA's operator has left is taken over without a moment in which a node loses its operands."""

from typing import Any

import pytest

from fault_proxy import Fault, FaultProxy, Request
from gpu_control_plane.api.nvidia.names import DEPLOY, TRUE, NodeLabel, StackEvent
from gpu_control_plane.kube.objects import controlled_by
from gpu_control_plane.operator.views import DaemonSet
from integration.stack.operator_env import NAMESPACE, OperatorEnv, gpu_node
from integration.stack.scenarios import stock
from unit.operator.stack.daemonset_names import TOOLKIT
from waiting import until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

NODES = ("left-0", "left-1", "left-2")
AS_NVIDIA_LEFT_THEM = {NodeLabel.PRESENT.value: TRUE, f"{DEPLOY}container-toolkit": TRUE}


def toolkit_of_nvidia(owner: dict[str, Any]) -> dict[str, Any]:
    """It selects every node with its deploy label: NVIDIA's operator knows no label for the container runtime."""
    labels = {"app": TOOLKIT}
    pod = {
        "nodeSelector": {f"{DEPLOY}container-toolkit": TRUE},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "nvidia-container-toolkit-ctr", "image": "example.com/toolkit:v1"}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    metadata = {"name": TOOLKIT, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"selector": {"matchLabels": labels}, "template": template}}


async def test_the_toolkit_stays_until_every_node_has_the_label_that_it_asks_for(env: OperatorEnv) -> None:
    await env.kill()
    policy = await env.policy(stock())
    reference = controlled_by(policy.resource, policy.name, policy.metadata.uid)
    owner = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "name": reference.name,
        "uid": reference.uid,
        "controller": True,
    }
    await env.nodes(*(gpu_node(name, labels=AS_NVIDIA_LEFT_THEM) for name in NODES))
    await env.client.create(DaemonSet, toolkit_of_nvidia(owner), NAMESPACE)

    async def runs_everywhere() -> bool:
        return {pod.spec.node_name for pod in await env.pods() if pod.ready} == set(NODES)

    await until_async(runs_everywhere, saying="the toolkit of NVIDIA's operator runs")
    unlabelled_at_write: list[set[str]] = []
    async with FaultProxy.before(env.client.config) as proxy:

        async def look(request: Request) -> None:
            if request.is_write and request.path.endswith(f"/daemonsets/{TOOLKIT}"):
                nodes = [await env.node(name) for name in NODES]
                unlabelled_at_write.append(
                    {node.name for node in nodes if NodeLabel.RUNTIME not in node.metadata.labels}
                )

        proxy.on_request = look
        proxy.plant(Fault(when=lambda request: request.is_write and "/nodes/left" in request.path, delay=2, times=3))
        await env.start(config=proxy.config)
        await env.state("ready")
        assert unlabelled_at_write
        assert not set().union(*unlabelled_at_write)
        assert TOOLKIT in await env.daemonsets()
        assert not await env.events(StackEvent.DRIFT_REPAIRED)
        await env.kill()
