"""An operator that finds everything as it should be writes nothing at all, however often it looks."""

import asyncio

import pytest

from fault_proxy import FaultProxy, Request
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.kube import load_config
from integration.stack.scenarios import stock
from integration.stack.theatre import Theatre, gpu_node
from waiting import until, until_async, until_still

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]


async def test_neither_a_restart_nor_idleness_costs_a_write(theatre: Theatre) -> None:
    await theatre.nodes(gpu_node("rest-0"), gpu_node("rest-1", system=("rhel", "9.4"), runtime="cri-o://1.36.0"))
    await theatre.policy(
        stock(
            dcgm={"enabled": True, "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}}},
            nodeStatusExporter={"enabled": True, "hostNetwork": True},
            gds={"enabled": True},
            dcgmExporter={"service": {"type": "NodePort"}},
        )
    )
    await theatre.state("ready")
    await until_async(lambda: _upgraded(theatre), within=60, saying="drivers are not known to be as they should be")
    await theatre.at_rest()
    await theatre.stop()
    await theatre.start()
    await theatre.at_rest()
    assert not theatre.writes()
    looks = theatre.reconciles("stack-status")
    # Whatever happens to a Node all day concerns nobody; a pod that is looked at anew makes the operator look, too.
    await theatre.client.patch(Node, "rest-0", {"metadata": {"annotations": {"example.com/seen": "now"}}})
    pod = await theatre.pod_of("nvidia-dcgm", "rest-0")
    await theatre.mend_pod(pod)
    await until(lambda: theatre.reconciles("stack-status") > looks, within=60)
    await theatre.at_rest()
    assert not theatre.writes()


async def test_a_restart_keeps_what_the_status_says_of_upgrades_until_nodes_were_looked_at(theatre: Theatre) -> None:
    await theatre.nodes(gpu_node("rest-0"), gpu_node("rest-1"))
    await theatre.policy(stock())
    await theatre.state("ready")
    await until_async(lambda: _upgraded(theatre), within=60, saying="drivers are not known to be as they should be")
    await theatre.at_rest()
    before = (await theatre.seen_policy()).status
    assert before.upgrade is not None
    await theatre.stop()
    async with FaultProxy.before(load_config(theatre.cluster.kubeconfig)) as proxy:
        looking = asyncio.Event()
        proxy.on_request = lambda request: _hold_back(request, looking)
        await theatre.start(proxy.config)
        await until(lambda: theatre.reconciles("stack") and theatre.reconciles("stack-status"), within=60)
        await until_still(lambda: theatre.reconciles("stack-status"))
        assert not theatre.writes()
        looking.set()
        await until(lambda: theatre.reconciles("upgrade-turns"), within=60)
        await theatre.at_rest()
        assert not theatre.writes()
        await theatre.stop()
    assert (await theatre.seen_policy()).status == before


async def _hold_back(request: Request, until_set: asyncio.Event) -> None:
    """Nodes whose upgrade is under way are asked for before the first turn is given."""
    if str(NodeLabel.UPGRADE_STATE) in request.query.get("labelSelector", ""):
        await until_set.wait()


async def _upgraded(theatre: Theatre) -> bool:
    found = [await theatre.node(name) for name in ("rest-0", "rest-1")]
    return all(node.metadata.labels.get(NodeLabel.UPGRADE_STATE) == UpgradeState.DONE for node in found)
