"""What NVIDIA's operator has left is taken over without a moment in which a node loses its operands."""

from typing import Any

import msgspec
import pytest

from fault_proxy import Fault, FaultProxy, Request
from gpu_control_plane.api.nvidia.names import DEPLOY, TRUE, NodeLabel, StackEvent
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Selection
from gpu_control_plane.kube.objects import controlled_by
from gpu_control_plane.operator.stack.driver.openshift import TRUSTED_CA
from gpu_control_plane.operator.views import DaemonSet
from integration.kinds import ConfigMap
from integration.stack.operator_env import NAMESPACE, OperatorEnv, gpu_node, merged
from integration.stack.scenarios import stock
from unit.operator.stack.daemonset_names import DRIVER, TOOLKIT
from waiting import until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

NODES = ("left-0", "left-1", "left-2")
AS_NVIDIA_LEFT_THEM = {NodeLabel.PRESENT.value: TRUE, f"{DEPLOY}container-toolkit": TRUE}


def owned_by(policy: StoredClusterPolicy) -> dict[str, Any]:
    owner: dict[str, Any] = msgspec.to_builtins(controlled_by(policy.resource, policy.name, policy.metadata.uid))
    return owner


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
    await env.nodes(*(gpu_node(name, labels=AS_NVIDIA_LEFT_THEM) for name in NODES))
    await env.client.create(DaemonSet, toolkit_of_nvidia(owned_by(policy)), NAMESPACE)

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


async def test_what_old_driver_pods_mount_stays_until_the_last_of_them_is_gone(env: OperatorEnv) -> None:
    """They are replaced one by one, when somebody deletes them, and a container that starts again needs its volumes."""
    await env.nodes(*(gpu_node(f"old-{number}") for number in range(2)))
    policy = await env.policy(merged(stock(), driver={"upgradePolicy": {"autoUpgrade": False}}))
    await env.state("ready")
    await env.patch_policy({"driver": {"version": "600.10.01"}})
    await env.at_rest()
    old = [pod for pod in await env.pods() if pod.controller and pod.controller.name == DRIVER]
    # A ConfigMap of the driver's that the new template does not name any more, as on OpenShift without its proxy.
    metadata = {"name": TRUSTED_CA, "ownerReferences": [owned_by(policy)]}
    await env.client.create(ConfigMap, {"metadata": metadata}, NAMESPACE)

    async def names() -> set[str]:
        return {held.name for held in await env.client.list(ConfigMap, Selection(NAMESPACE))}

    async def gone() -> bool:
        return TRUSTED_CA not in await names()

    for pod in old:
        await env.at_rest()
        assert TRUSTED_CA in await names()
        await env.client.delete(Pod, pod.name, NAMESPACE)
    await until_async(gone, saying="nothing mounts it any more")
    await env.state("ready")
